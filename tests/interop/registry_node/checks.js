// The two registry clients of Node, in the three languages, each reading what it wrote and what the other wrote.
const assert = require("node:assert");
const { SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");
const {
  AvroDeserializer,
  AvroSerializer,
  JsonDeserializer,
  JsonSerializer,
  SchemaRegistryClient,
  SerdeType,
} = require("@confluentinc/schemaregistry");

const [url, name] = process.argv.slice(2);
const avro = (fields) => JSON.stringify({ type: "record", name: "Order", namespace: "shop", fields });
const first = avro([{ name: "id", type: "int" }]);
const second = avro([{ name: "id", type: "int" }, { name: "note", type: "string", default: "none" }]);
const json = JSON.stringify({ type: "object", properties: { id: { type: "integer" } }, required: ["id"] });
const proto = 'syntax = "proto3"; package shop; message Order { int32 id = 1; string note = 2; }';
const value = (topic) => `${topic}-value`;

async function ok(what, act) {
  await act();
  console.log(`ok ${what}`);
}

async function kafkajs() {
  const registry = new SchemaRegistry({ host: url });
  const topic = `${name}-kafkajs`;
  for (const [type, schema] of [[SchemaType.AVRO, first], [SchemaType.JSON, json], [SchemaType.PROTOBUF, proto]]) {
    await ok(`kafkajs ${type} there and back`, async () => {
      const { id } = await registry.register({ type, schema }, { subject: `${topic}-${type}` });
      const data = await registry.encode(id, { id: 7 });
      assert.strictEqual(data[0], 0);
      assert.strictEqual(data.readInt32BE(1), id);
      assert.strictEqual((await registry.decode(data)).id, 7);
      assert.strictEqual(await registry.getLatestSchemaId(`${topic}-${type}`), id);
    });
  }
  await ok("kafkajs evolution", async () => {
    const subject = value(topic);
    const old = await registry.register({ type: SchemaType.AVRO, schema: first }, { subject });
    const data = await registry.encode(old.id, { id: 1 });
    const newer = await registry.register({ type: SchemaType.AVRO, schema: second }, { subject });
    assert.notStrictEqual(old.id, newer.id);
    const reader = JSON.parse(second);
    const decoded = await registry.decode(data, { [SchemaType.AVRO]: { readerSchema: reader } });
    assert.strictEqual(decoded.note, "none");
  });
  await ok("kafkajs is told of what does not fit", async () => {
    const broken = avro([{ name: "id", type: "string" }]);
    await assert.rejects(
      registry.register({ type: SchemaType.AVRO, schema: broken }, { subject: value(topic) }),
      /incompatible/i,
    );
  });
}

async function confluent() {
  const client = new SchemaRegistryClient({ baseURLs: [url] });
  const topic = `${name}-confluent`;
  await ok("confluent register, look up, versions", async () => {
    const id = await client.register(value(topic), { schemaType: "AVRO", schema: first }, false);
    assert.strictEqual(await client.getId(value(topic), { schemaType: "AVRO", schema: first }, false), id);
    assert.deepStrictEqual(await client.getAllVersions(value(topic)), [1]);
    assert.strictEqual(await client.testSubjectCompatibility(value(topic), { schemaType: "AVRO", schema: second }), true);
    assert.ok((await client.getAllSubjects()).includes(value(topic)));
  });
  await ok("confluent avro there and back", async () => {
    const serializer = new AvroSerializer(client, SerdeType.VALUE, { useLatestVersion: true });
    const deserializer = new AvroDeserializer(client, SerdeType.VALUE, {});
    const data = await serializer.serialize(topic, { id: 5 });
    assert.strictEqual((await deserializer.deserialize(topic, data)).id, 5);
    assert.strictEqual((await new SchemaRegistry({ host: url }).decode(Buffer.from(data))).id, 5);
  });
  await ok("confluent json there and back", async () => {
    await client.register(value(`${topic}-json`), { schemaType: "JSON", schema: json }, false);
    const serializer = new JsonSerializer(client, SerdeType.VALUE, { useLatestVersion: true });
    const deserializer = new JsonDeserializer(client, SerdeType.VALUE, {});
    const data = await serializer.serialize(`${topic}-json`, { id: 6 });
    assert.strictEqual((await deserializer.deserialize(`${topic}-json`, data)).id, 6);
  });
  await ok("confluent config and deleting", async () => {
    await client.updateCompatibility(value(topic), "FULL");
    assert.strictEqual(await client.getCompatibility(value(topic)), "FULL");
    assert.deepStrictEqual(await client.deleteSubject(value(topic)), [1]);
    assert.deepStrictEqual(await client.deleteSubject(value(topic), true), [1]);
  });
  await client.close?.();
}

kafkajs()
  .then(confluent)
  .then(() => process.exit(0))
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
