// kafkajs, producing and administering: node checks.js HOST:PORT PREFIX
// Consuming is in groups.js: a kafkajs consumer is always a member of a group. The test reads what was written here with
// another client. One line per check on standard output; the exit code says whether all of them held.
const assert = require("node:assert");
const { Kafka, CompressionTypes, Partitioners, ConfigResourceTypes, logLevel } = require("kafkajs");

const [bootstrap, prefix] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "checks", brokers: [bootstrap], logLevel: logLevel.NOTHING });
const admin = kafka.admin();
let failed = 0;

async function check(name, body) {
  try {
    await body();
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error.stack}`);
  }
}

async function soon(body) {
  const deadline = Date.now() + 10000;
  for (;;) {
    try {
      return await body();
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

async function topic(name, numPartitions = 1, configEntries = []) {
  const full = `${prefix}-${name}`;
  await admin.createTopics({ topics: [{ topic: full, numPartitions, configEntries }], waitForLeaders: true });
  return full;
}

async function withProducer(settings, body) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, ...settings });
  await producer.connect();
  try {
    return await body(producer);
  } finally {
    await producer.disconnect();
  }
}

async function refused(type, body) {
  await assert.rejects(body, (error) => {
    const code = error.type || (error.errors && error.errors[0].type) || (error.cause && error.cause.type);
    assert.strictEqual(code, type);
    return true;
  });
}

async function main() {
  await admin.connect();

  await check("the cluster", async () => {
    const cluster = await admin.describeCluster();
    assert.strictEqual(cluster.brokers.length, 1);
    assert.strictEqual(`${cluster.brokers[0].host}:${cluster.brokers[0].port}`, bootstrap);
    assert.strictEqual(cluster.controller, cluster.brokers[0].nodeId);
    assert.ok(cluster.clusterId);
  });

  await check("create, list, describe, delete", async () => {
    const name = await topic("topics", 3);
    await soon(async () => assert.ok((await admin.listTopics()).includes(name)));
    const described = await admin.fetchTopicMetadata({ topics: [name] });
    assert.strictEqual(described.topics[0].partitions.length, 3);
    assert.ok(described.topics[0].partitions.every((partition) => partition.isr.length === 1));
    assert.strictEqual(await admin.createTopics({ topics: [{ topic: name }] }), false); // it is there already
    await admin.deleteTopics({ topics: [name] });
    await soon(async () => assert.ok(!(await admin.listTopics()).includes(name)));
  });

  await check("more partitions", async () => {
    const name = await topic("partitions", 1);
    await admin.createPartitions({ topicPartitions: [{ topic: name, count: 4 }] });
    await soon(async () => {
      const described = await admin.fetchTopicMetadata({ topics: [name] });
      assert.strictEqual(described.topics[0].partitions.length, 4);
    });
    await refused("INVALID_PARTITIONS", () => admin.createPartitions({ topicPartitions: [{ topic: name, count: 2 }] }));
  });

  await check("topics that cannot be", async () => {
    await refused("INVALID_REPLICATION_FACTOR", () =>
      admin.createTopics({ topics: [{ topic: `${prefix}-three`, replicationFactor: 3 }] }));
    await refused("INVALID_TOPIC_EXCEPTION", () => admin.createTopics({ topics: [{ topic: "a b" }] }));
    await refused("UNKNOWN_TOPIC_OR_PARTITION", () => admin.deleteTopics({ topics: [`${prefix}-none`], timeout: 1000 }));
  });

  await check("settings", async () => {
    const name = await topic("settings", 1, [{ name: "retention.ms", value: "5000" }]);
    const resource = { type: ConfigResourceTypes.TOPIC, name };
    const value = async (setting) => {
      const described = await admin.describeConfigs({ resources: [resource], includeSynonyms: true });
      return described.resources[0].configEntries.find((entry) => entry.configName === setting).configValue;
    };
    assert.strictEqual(await value("retention.ms"), "5000");
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ ...resource, configEntries: [{ name: "segment.ms", value: "60000" }] }],
    });
    await soon(async () => assert.strictEqual(await value("segment.ms"), "60000"));
    assert.strictEqual(await value("retention.ms"), "604800000"); // what was not named went back to its default
  });

  await check("offsets and delete records", async () => {
    const name = await topic("offsets");
    const t0 = Date.now() - 10000;
    await withProducer({}, async (producer) => {
      for (let n = 0; n < 5; n += 1) {
        await producer.send({ topic: name, messages: [{ value: `${n}`, timestamp: `${t0 + n * 1000}` }] });
      }
    });
    const [ends] = await admin.fetchTopicOffsets(name);
    assert.deepStrictEqual([ends.low, ends.high], ["0", "5"]);
    const [found] = await admin.fetchTopicOffsetsByTimestamp(name, t0 + 2500);
    assert.strictEqual(found.offset, "3");
    await admin.deleteTopicRecords({ topic: name, partitions: [{ partition: 0, offset: "2" }] });
    await soon(async () => assert.strictEqual((await admin.fetchTopicOffsets(name))[0].low, "2"));
  });

  await check("reassignments", async () => {
    const listed = await admin.listPartitionReassignments({});
    assert.deepStrictEqual(listed.topics, []);
  });

  for (const [label, compression] of [["none", CompressionTypes.None], ["gzip", CompressionTypes.GZIP]]) {
    await check(`records, ${label}`, async () => {
      const name = await topic(`records-${label}`);
      const messages = [];
      for (let n = 0; n < 200; n += 1) messages.push({ key: `key ${n}`, value: `value ${n}`, headers: { n: `${n}` } });
      messages.push({ key: null, value: "no key" });
      messages.push({ key: "no value", value: null });
      messages.push({ key: "", value: "" });
      messages.push({ key: "headers", value: "v", headers: { twice: ["1", "2"], other: Buffer.from([0, 255]) } });
      messages.push({ key: "big", value: Buffer.alloc(900000, "x") });
      await withProducer({}, async (producer) => {
        const [sent] = await producer.send({ topic: name, messages, compression });
        assert.strictEqual(sent.baseOffset, "0");
      });
      assert.strictEqual((await admin.fetchTopicOffsets(name))[0].high, "205");
    });
  }

  for (const acks of [0, 1, -1]) {
    await check(`acks=${acks}`, async () => {
      const name = await topic(`acks${acks}`);
      await withProducer({}, (producer) => producer.send({ topic: name, acks, messages: [{ value: "v" }] }));
      await soon(async () => assert.strictEqual((await admin.fetchTopicOffsets(name))[0].high, "1"));
    });
  }

  await check("an idempotent producer", async () => {
    const name = await topic("idempotent");
    await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
      for (let n = 0; n < 20; n += 1) await producer.send({ topic: name, messages: [{ value: `${n}` }] });
    });
    assert.strictEqual((await admin.fetchTopicOffsets(name))[0].high, "20");
  });

  await check("a message over the limit", async () => {
    const name = await topic("large");
    await withProducer({ retry: { retries: 0 } }, (producer) =>
      refused("MESSAGE_TOO_LARGE", () => producer.send({ topic: name, messages: [{ value: Buffer.alloc(2000000) }] })));
  });

  await check("murmur2 chooses the partition", async () => {
    const name = await topic("murmur2", 12);
    const hashes = { 21: -973932308, foobar: -790332482, "a-little-bit-long-string": -985981536, abc: 479470107 };
    await withProducer({}, async (producer) => {
      for (const [key, hash] of Object.entries(hashes)) {
        const [sent] = await producer.send({ topic: name, messages: [{ key, value: "v" }] });
        assert.strictEqual(sent.partition, (hash & 0x7fffffff) % 12);
      }
    });
  });

  await check("a topic made by writing to it", async () => {
    const name = `${prefix}-auto`;
    await withProducer({ allowAutoTopicCreation: true }, (producer) =>
      producer.send({ topic: name, messages: [{ value: "first" }] }));
    await soon(async () => assert.strictEqual((await admin.fetchTopicOffsets(name))[0].high, "1"));
  });

  await check("a batch over several topics", async () => {
    const one = await topic("batch-one", 2);
    const two = await topic("batch-two");
    await withProducer({}, (producer) =>
      producer.sendBatch({
        topicMessages: [
          { topic: one, messages: [{ value: "a", partition: 0 }, { value: "b", partition: 1 }] },
          { topic: two, messages: [{ value: "c" }] },
        ],
      }));
    const offsets = await admin.fetchTopicOffsets(one);
    assert.deepStrictEqual(offsets.map((partition) => partition.high), ["1", "1"]);
  });

  await admin.disconnect();
  process.exit(failed === 0 ? 0 : 1);
}

main().catch((error) => {
  console.log(`FAILED to run: ${error.stack}`);
  process.exit(1);
});
