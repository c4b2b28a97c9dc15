"""What happens when things break: kill -9, torn files, full and read-only disks, a broker that stands
still."""
