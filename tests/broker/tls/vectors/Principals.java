// Prints principals.json: names as Java's X500Principal writes them, and what Kafka's SslPrincipalMapper makes of names.
//   java -cp kafka-clients-4.3.1.jar:slf4j-api.jar Principals.java names.txt > principals.json
// names.txt holds one name in hex (DER) a line, made by make_names.py.
import java.nio.file.*;
import java.util.*;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Principals {
    static String[] RULES = {
        "DEFAULT",
        "RULE:^CN=(.*?),.*$/$1/",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT",
        "RULE:.*/x/,DEFAULT",
        "RULE:^CN=(\\w+).*$/a$1b$2c/",
        "RULE:CN=(.*)/\\$1$0/L",
        "RULE:^CN=(.*?),\\s*OU=(.*?)$/$1\\/$2/ , DEFAULT",
        "RULE:^O=(.*)\\/(.*)$/$2/,RULE:^(.)(.)(.*)$/$2$1$33/",
        "RULE:[A-Z]+=([^,+]*)(,|\\+)?/$1-/,DEFAULT",
        "RULE:^CN=([^,]+)$/$12/",
        " RULE:^CN=([^,]+)$/<$1>/ ,\n DEFAULT",
    };
    static String[] NAMES = {
        "CN=Duke,OU=ServiceUsers,O=Org,L=Berlin,ST=BE,C=DE", "CN=duke", "CN=Duke,OU=Ops", "O=a/b", "CN=kafka1.example.com,OU=SME",
        "OU=x,CN=Test.User+UID=7", "CN=\\,odd\\=,OU=Ops", "", "CN=a b", "CN=\u00c4rger",
    };
    static String json(String s) {
        if (s == null) return "null";
        StringBuilder b = new StringBuilder("\"");
        for (char c : s.toCharArray()) {
            if (c == '"' || c == '\\') b.append('\\').append(c);
            else if (c < 32 || c > 126) b.append(String.format("\\u%04x", (int) c));
            else b.append(c);
        }
        return b.append('"').toString();
    }
    public static void main(String[] args) throws Exception {
        List<String> out = new ArrayList<>();
        for (String hex : Files.readAllLines(Path.of(args[0]))) {
            byte[] der = HexFormat.of().parseHex(hex.trim());
            out.add("  [" + json(hex.trim()) + ", " + json(new X500Principal(der).getName()) + "]");
        }
        System.out.println("{\"names\": [\n" + String.join(",\n", out) + "\n], \"rules\": [");
        out.clear();
        for (String rule : RULES) {
            SslPrincipalMapper mapper = SslPrincipalMapper.fromRules(rule);
            for (String name : NAMES) {
                String found;
                try { found = mapper.getName(name); } catch (Exception e) { found = null; }
                out.add("  [" + json(rule) + ", " + json(name) + ", " + json(found) + "]");
            }
        }
        System.out.println(String.join(",\n", out) + "\n]}");
    }
}
