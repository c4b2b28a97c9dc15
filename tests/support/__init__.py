"""What tests of several rooms share: waiting, and running the platform's services as child processes."""
