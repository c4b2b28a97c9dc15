// kafkajs in groups and transactions: node groups.js HOST:PORT PREFIX
// One line per check on standard output; the exit code says whether all of them held.
const assert = require("node:assert");
const { Kafka, Partitioners, AssignerProtocol, logLevel } = require("kafkajs");

const [bootstrap, prefix] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "groups", brokers: [bootstrap], logLevel: logLevel.NOTHING });
const admin = kafka.admin();
const partitions = 4;
let failed = 0;

async function check(name, body) {
  try {
    await body(`${prefix}-${name.replace(/[^a-z]+/g, "-")}`);
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error.stack}`);
  }
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function until(condition, what, seconds = 30) {
  const deadline = Date.now() + seconds * 1000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`never: ${what}`);
    await pause(20);
  }
}

async function topic(name, numPartitions = 1) {
  await admin.createTopics({ topics: [{ topic: name, numPartitions }], waitForLeaders: true });
  return name;
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

async function fill(name, count, many = partitions) {
  await withProducer({}, async (producer) => {
    for (let from = 0; from < count; from += 500) {
      const numbers = Array.from({ length: Math.min(500, count - from) }, (_, at) => from + at);
      await producer.send({ topic: name, messages: numbers.map((n) => ({ value: String(n), partition: n % many })) });
    }
  });
}

// A member that reads one topic and remembers what it saw; offsets are committed by kafkajs as it goes.
async function member(groupId, name, seen, settings = {}) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 300, rebalanceTimeout: 10000, ...settings });
  const state = { consumer, assigned: [], joins: 0 };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    state.joins += 1;
    state.assigned = payload.memberAssignment[name] || [];
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [name], fromBeginning: true });
  await consumer.run({
    autoCommitThreshold: 50,
    eachMessage: async ({ partition, message }) => {
      seen.set(`${partition}/${message.offset}`, message.value.toString());
    },
  });
  return state;
}

async function committed(groupId, name) {
  const [found] = await admin.fetchOffsets({ groupId, topics: [name] });
  return Object.fromEntries(found.partitions.map((each) => [each.partition, Number(each.offset)]));
}

async function readCommitted(groupId, name, count) {
  const values = [];
  const consumer = kafka.consumer({ groupId, readUncommitted: false });
  await consumer.connect();
  await consumer.subscribe({ topics: [name], fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => void values.push(message.value.toString()) });
  await until(() => values.length >= count, `${count} committed records, ${values.length} came`);
  await pause(300);
  await consumer.disconnect();
  return values;
}

async function main() {
  await admin.connect();

  await check("join read commit resume", async (name) => {
    await topic(name, 1);
    await fill(name, 100, 1);
    const first = new Map();
    const one = await member(`${name}-group`, name, first);
    await until(() => first.size === 100, "a hundred records");
    await one.consumer.disconnect();
    assert.deepStrictEqual(await committed(`${name}-group`, name), { 0: 100 });
    await fill(name, 50, 1);
    const second = new Map();
    const two = await member(`${name}-group`, name, second);
    await until(() => second.size >= 50, "fifty more");
    await two.consumer.disconnect();
    assert.deepStrictEqual([...second.keys()], Array.from({ length: 50 }, (_, n) => `0/${100 + n}`));
  });

  await check("rebalances under load", async (name) => {
    await topic(name, partitions);
    const seen = new Map();
    const members = [await member(`${name}-group`, name, seen), await member(`${name}-group`, name, seen)];
    const together = () => members.flatMap((each) => each.assigned).sort().join();
    const writing = fill(name, 8000);
    await until(() => together() === "0,1,2,3", "two members share");
    members.push(await member(`${name}-group`, name, seen));
    await until(() => together() === "0,1,2,3" && members.every((each) => each.assigned.length), "three members share");
    await members.shift().consumer.disconnect();
    await until(() => together() === "0,1,2,3", "two members share again");
    await writing;
    await until(() => seen.size === 8000, "every record was read");
    for (const each of members) await each.consumer.disconnect();
    assert.strictEqual(new Set(seen.values()).size, 8000);
    assert.deepStrictEqual(await committed(`${name}-group`, name), { 0: 2000, 1: 2000, 2: 2000, 3: 2000 });
  });

  await check("describe reset and delete", async (name) => {
    await topic(name, partitions);
    await fill(name, 40);
    const seen = new Map();
    const one = await member(`${name}-group`, name, seen);
    await until(() => seen.size === 40, "everything was read");
    const [described] = (await admin.describeGroups([`${name}-group`])).groups;
    assert.strictEqual(described.state, "Stable");
    assert.strictEqual(described.members.length, 1);
    const share = AssignerProtocol.MemberAssignment.decode(described.members[0].memberAssignment);
    assert.deepStrictEqual([...share.assignment[name]].sort(), [0, 1, 2, 3]);
    await assert.rejects(admin.deleteGroups([`${name}-group`]));
    await one.consumer.disconnect();
    await admin.setOffsets({ groupId: `${name}-group`, topic: name, partitions: [{ partition: 1, offset: "3" }] });
    assert.strictEqual((await committed(`${name}-group`, name))[1], 3);
    await admin.resetOffsets({ groupId: `${name}-group`, topic: name, earliest: true });
    const again = new Map();
    const two = await member(`${name}-group`, name, again);
    await until(() => again.size === 40, "everything once more");
    await two.consumer.disconnect();
    await admin.deleteGroups([`${name}-group`]);
    assert.ok(!(await admin.listGroups()).groups.some((each) => each.groupId === `${name}-group`));
  });

  await check("pause seek and manual commit", async (name) => {
    await topic(name, 1);
    await fill(name, 30, 1);
    const offsets = [];
    const consumer = kafka.consumer({ groupId: `${name}-group` });
    await consumer.connect();
    await consumer.subscribe({ topics: [name], fromBeginning: true });
    await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => void offsets.push(Number(message.offset)) });
    await until(() => offsets.length === 30, "thirty records");
    consumer.seek({ topic: name, partition: 0, offset: "25" });
    await until(() => offsets.length === 35, "the last five again");
    assert.deepStrictEqual(offsets.slice(30), [25, 26, 27, 28, 29]);
    await consumer.commitOffsets([{ topic: name, partition: 0, offset: "12" }]);
    await consumer.disconnect();
    assert.deepStrictEqual(await committed(`${name}-group`, name), { 0: 12 });
  });

  await check("transactions commit and abort", async (name) => {
    await topic(name, 1);
    await withProducer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true }, async (producer) => {
      for (let n = 0; n < 10; n += 1) {
        const transaction = await producer.transaction();
        await transaction.send({ topic: name, messages: [{ value: String(n) }] });
        if (n % 2) await transaction.abort();
        else await transaction.commit();
      }
    });
    assert.deepStrictEqual(await readCommitted(`${name}-group`, name, 5), ["0", "2", "4", "6", "8"]);
  });

  await check("transactions with offsets", async (name) => {
    const input = await topic(`${name}-in`, 1);
    const output = await topic(`${name}-out`, 1);
    await fill(input, 60, 1);
    const groupId = `${name}-group`;
    await withProducer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true }, async (producer) => {
      let turn = 0;
      while ((await committed(groupId, input))[0] !== 60) {
        turn += 1;
        assert.ok(turn < 20, "it takes too many turns");
        const abort = turn % 3 === 0;
        const consumer = kafka.consumer({ groupId, readUncommitted: false, maxBytesPerPartition: 600 });
        await consumer.connect();
        await consumer.subscribe({ topics: [input], fromBeginning: true });
        let done = false;
        await consumer.run({
          autoCommit: false,
          eachBatch: async ({ batch }) => {
            if (done || batch.messages.length === 0) return;
            done = true;
            const some = batch.messages.slice(0, 15);
            const transaction = await producer.transaction();
            await transaction.send({ topic: output, messages: some.map((each) => ({ value: each.value })) });
            const end = String(Number(some[some.length - 1].offset) + 1);
            await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: input, partitions: [{ partition: 0, offset: end }] }] });
            if (abort) await transaction.abort();
            else await transaction.commit();
          },
        });
        await until(() => done, "a batch");
        await consumer.disconnect();
      }
    });
    const values = await readCommitted(`${name}-judge`, output, 60);
    assert.deepStrictEqual(values, Array.from({ length: 60 }, (_, n) => String(n)));
  });

  await admin.disconnect();
  process.exit(failed === 0 ? 0 : 1);
}

main().catch((error) => {
  console.log(`FAILED to run: ${error.stack}`);
  process.exit(1);
});
