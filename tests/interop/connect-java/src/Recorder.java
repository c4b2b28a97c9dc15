import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Date;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * One case a line in, the same with its outcome a line out. What a case wants is its "do": transform, predicate,
 * from_connect, to_connect, from_header, to_header, parse, text. Values carry their Java type, {"i8": 1} or
 * {"f32": "1.5"}, because JSON does not know it; schemas are written as JsonConverter writes them.
 */
public class Recorder {
  private static final ObjectMapper MAPPER = new ObjectMapper();
  private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
  private static final JsonConverter SCHEMAS = new JsonConverter();

  public static void main(String[] arguments) throws Exception {
    SCHEMAS.configure(Map.of("schemas.enable", "true"), false);
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      var one = (ObjectNode) MAPPER.readTree(line);
      try {
        one.set("out", perform(one));
      } catch (Exception error) {
        var failure = NODES.objectNode();
        failure.put("class", error.getClass().getName());
        failure.put("message", error.getMessage());
        one.set("error", failure);
      }
      out.println(one);
    }
    out.flush();
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static JsonNode perform(JsonNode one) throws Exception {
    Map<String, String> config = one.has("config") ? MAPPER.convertValue(one.get("config"), Map.class) : Map.of();
    Object plugin = one.has("class") ? Class.forName(one.get("class").asText()).getDeclaredConstructor().newInstance() : null;
    switch (one.get("do").asText()) {
      case "transform": {
        var transform = (Transformation) plugin;
        transform.configure(config);
        return record(transform.apply(record(one.get("record"))));
      }
      case "predicate": {
        var predicate = (Predicate) plugin;
        predicate.configure(config);
        return NODES.booleanNode(predicate.test(record(one.get("record"))));
      }
      case "from_connect": {
        var converter = (Converter) plugin;
        converter.configure(config, false);
        Schema schema = schema(one.get("schema"));
        return bytes(converter.fromConnectData("t", schema, value(schema, one.get("value"))));
      }
      case "to_connect": {
        var converter = (Converter) plugin;
        converter.configure(config, false);
        return schemaAndValue(converter.toConnectData("t", one.get("data").isNull() ? null : one.get("data").binaryValue()));
      }
      case "from_header": {
        var converter = (HeaderConverter) plugin;
        Schema schema = schema(one.get("schema"));
        return bytes(converter.fromConnectHeader("t", "h", schema, value(schema, one.get("value"))));
      }
      case "to_header":
        return schemaAndValue(((HeaderConverter) plugin).toConnectHeader("t", "h", one.get("data").binaryValue()));
      case "parse":
        return schemaAndValue(Values.parseString(one.get("text").asText()));
      case "text": {
        Schema schema = schema(one.get("schema"));
        String text = Values.convertToString(schema, value(schema, one.get("value")));
        return text == null ? NODES.nullNode() : NODES.textNode(text);
      }
      default:
        throw new IllegalArgumentException(one.get("do").asText());
    }
  }

  private static ConnectRecord<?> record(JsonNode node) throws Exception {
    Schema keySchema = schema(node.get("key").get("schema"));
    Schema valueSchema = schema(node.get("value").get("schema"));
    var headers = new ConnectHeaders();
    for (JsonNode header : node.get("headers")) {
      Schema schema = schema(header.get("schema"));
      headers.add(header.get("name").asText(), new SchemaAndValue(schema, value(schema, header.get("value"))));
    }
    return new SinkRecord(
        node.get("topic").asText(),
        node.get("partition").asInt(),
        keySchema,
        value(keySchema, node.get("key").get("value")),
        valueSchema,
        value(valueSchema, node.get("value").get("value")),
        node.get("offset").asLong(),
        node.get("timestamp").isNull() ? null : node.get("timestamp").asLong(),
        TimestampType.CREATE_TIME,
        headers);
  }

  private static JsonNode record(ConnectRecord<?> record) {
    if (record == null) {
      return NODES.nullNode();
    }
    var node = NODES.objectNode();
    node.put("topic", record.topic());
    node.put("partition", record.kafkaPartition());
    node.put("timestamp", record.timestamp());
    node.set("key", schemaAndValue(new SchemaAndValue(record.keySchema(), record.key())));
    node.set("value", schemaAndValue(new SchemaAndValue(record.valueSchema(), record.value())));
    var headers = node.putArray("headers");
    for (Header header : record.headers()) {
      var one = (ObjectNode) schemaAndValue(new SchemaAndValue(header.schema(), header.value()));
      one.put("name", header.key());
      headers.add(one);
    }
    return node;
  }

  private static Schema schema(JsonNode node) {
    return node == null || node.isNull() ? null : SCHEMAS.asConnectSchema(node);
  }

  private static JsonNode bytes(byte[] data) {
    return data == null ? NODES.nullNode() : NODES.binaryNode(data);
  }

  private static JsonNode schemaAndValue(SchemaAndValue both) {
    if (both == null) {
      return NODES.nullNode();
    }
    var node = NODES.objectNode();
    node.set("schema", both.schema() == null ? NODES.nullNode() : schemaOrName(both.schema()));
    node.set("value", tagged(both.value()));
    return node;
  }

  /** An array or map of nulls has no element schema, which JsonConverter cannot write. */
  private static JsonNode schemaOrName(Schema schema) {
    try {
      return SCHEMAS.asJsonSchema(schema);
    } catch (Exception error) {
      return NODES.textNode(schema.toString());
    }
  }

  private static Object value(Schema schema, JsonNode node) throws Exception {
    if (node == null || node.isNull()) {
      return null;
    }
    String type = node.fieldNames().next();
    JsonNode content = node.get(type);
    switch (type) {
      case "i8": return (byte) content.intValue();
      case "i16": return (short) content.intValue();
      case "i32": return content.intValue();
      case "i64": return content.longValue();
      case "f32": return Float.parseFloat(content.asText());
      case "f64": return Double.parseDouble(content.asText());
      case "bool": return content.booleanValue();
      case "str": return content.textValue();
      case "bytes": return content.binaryValue();
      case "dec": return new BigDecimal(content.textValue());
      case "date": return new Date(content.longValue());
      case "list": {
        var list = new ArrayList<Object>();
        for (JsonNode element : content) {
          list.add(value(schema == null ? null : schema.valueSchema(), element));
        }
        return list;
      }
      case "map": {
        var map = new LinkedHashMap<Object, Object>();
        for (JsonNode entry : content) {
          map.put(
              value(schema == null ? null : schema.keySchema(), entry.get(0)),
              value(schema == null ? null : schema.valueSchema(), entry.get(1)));
        }
        return map;
      }
      case "struct": {
        var struct = new Struct(schema);
        for (Iterator<Map.Entry<String, JsonNode>> fields = content.fields(); fields.hasNext(); ) {
          var field = fields.next();
          struct.put(field.getKey(), value(schema.field(field.getKey()).schema(), field.getValue()));
        }
        return struct;
      }
      default: throw new IllegalArgumentException(type);
    }
  }

  private static JsonNode tag(String type, JsonNode content) {
    var node = NODES.objectNode();
    node.set(type, content);
    return node;
  }

  private static JsonNode tagged(Object value) {
    if (value == null) return NODES.nullNode();
    if (value instanceof Byte number) return tag("i8", NODES.numberNode(number));
    if (value instanceof Short number) return tag("i16", NODES.numberNode(number));
    if (value instanceof Integer number) return tag("i32", NODES.numberNode(number));
    if (value instanceof Long number) return tag("i64", NODES.numberNode(number));
    if (value instanceof Float number) return tag("f32", NODES.textNode(number.toString()));
    if (value instanceof Double number) return tag("f64", NODES.textNode(number.toString()));
    if (value instanceof Boolean truth) return tag("bool", NODES.booleanNode(truth));
    if (value instanceof String text) return tag("str", NODES.textNode(text));
    if (value instanceof byte[] data) return tag("bytes", NODES.binaryNode(data));
    if (value instanceof ByteBuffer data) return tag("bytes", NODES.binaryNode(data.array()));
    if (value instanceof BigDecimal number) return tag("dec", NODES.textNode(number.toString()));
    if (value instanceof Date moment) return tag("date", NODES.numberNode(moment.getTime()));
    if (value instanceof List<?> list) {
      ArrayNode elements = NODES.arrayNode();
      for (Object element : list) {
        elements.add(tagged(element));
      }
      return tag("list", elements);
    }
    if (value instanceof Map<?, ?> map) {
      ArrayNode entries = NODES.arrayNode();
      for (var entry : map.entrySet()) {
        entries.add(NODES.arrayNode().add(tagged(entry.getKey())).add(tagged(entry.getValue())));
      }
      return tag("map", entries);
    }
    if (value instanceof Struct struct) {
      ObjectNode fields = NODES.objectNode();
      for (Field field : struct.schema().fields()) {
        fields.set(field.name(), tagged(struct.getWithoutDefault(field.name())));
      }
      return tag("struct", fields);
    }
    throw new IllegalArgumentException(value.getClass().getName());
  }
}
