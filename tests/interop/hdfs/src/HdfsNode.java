import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * A NameNode and a DataNode on the loopback interface. Prints "port N"; then takes a command a line: "datanode stop",
 * "datanode start". Ends when its standard input does.
 */
public class HdfsNode {
  public static void main(String[] arguments) throws Exception {
    var configuration = new Configuration();
    configuration.set("dfs.replication", "1");
    configuration.set("hadoop.user.group.static.mapping.overrides", "");
    configuration.setBoolean("dfs.permissions.enabled", false);
    var folder = Path.of(arguments[0]).toAbsolutePath();
    try (var cluster = new MiniDFSCluster.Builder(configuration, folder.toFile()).numDataNodes(1).build()) {
      cluster.waitActive();
      System.out.println("port " + cluster.getNameNodePort());
      MiniDFSCluster.DataNodeProperties stopped = null;
      for (int read = System.in.read(); read >= 0; read = System.in.read()) {
        if (read == '-' && stopped == null) {
          stopped = cluster.stopDataNode(0);
        } else if (read == '+' && stopped != null) {
          cluster.restartDataNode(stopped, true);
          cluster.waitActive();
          stopped = null;
        } else {
          continue;
        }
        System.out.println("done");
      }
    }
  }
}
