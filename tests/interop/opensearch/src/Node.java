import static org.codelibs.opensearch.runner.OpenSearchRunner.newConfigs;

import org.codelibs.opensearch.runner.OpenSearchRunner;

/** One node in the folder of the first argument; prints the port of its HTTP API and ends with its input. */
public class Node {
  public static void main(String[] arguments) throws Exception {
    OpenSearchRunner runner = new OpenSearchRunner();
    runner.onBuild((number, settings) -> {
      settings.put("discovery.type", "single-node");
      settings.put("http.host", "127.0.0.1");
      settings.put("transport.host", "127.0.0.1");
    });
    runner.build(newConfigs().basePath(arguments[0]).clusterName("millstream").numOfNode(1).disableESLogger());
    System.out.println("port " + runner.node().settings().get("http.port"));
    while (System.in.read() >= 0) { }
    runner.close();
    System.exit(0);
  }
}
