// kafkajs over TLS with a login: node secured.js HOST:PORT CA.pem PASSWORD TOPIC
// alice may read and write the topic. Sessions last two seconds there. One line per check on standard output; the exit code
// says whether all of them held.
const assert = require("node:assert");
const fs = require("node:fs");
const { Kafka, Partitioners, logLevel } = require("kafkajs");

const [bootstrap, authority, password, topic] = process.argv.slice(2);
let failed = 0;

function secured(mechanism, username, word, more = {}) {
  return new Kafka({
    clientId: "secured",
    brokers: [bootstrap],
    ssl: { ca: [fs.readFileSync(authority, "utf-8")] },
    sasl: { mechanism, username, password: word },
    reauthenticationThreshold: 1000,
    logLevel: logLevel.NOTHING,
    ...more,
  });
}

async function check(name, body) {
  try {
    await body();
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error.stack}`);
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function produceAndConsume(mechanism) {
  const kafka = secured(mechanism, "alice", password);
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const began = Date.now();
  let sent = 0;
  do { // over several sessions
    await producer.send({ topic, messages: [{ value: `${mechanism} ${sent}` }] });
    sent += 1;
    await pause(50);
  } while (Date.now() - began < 5000);
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `${topic}-${mechanism}` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const seen = new Set();
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`${seen.size} of ${sent} came`)), 60000).unref();
    consumer.run({
      eachMessage: async ({ message }) => {
        const value = message.value.toString();
        if (value.startsWith(`${mechanism} `)) seen.add(value);
        if (seen.size === sent) resolve();
      },
    }).catch(reject);
  });
  await consumer.disconnect();
}

async function main() {
  for (const mechanism of ["plain", "scram-sha-256", "scram-sha-512"]) {
    await check(`${mechanism}: produce over several sessions, consume in a group`, () => produceAndConsume(mechanism));
    await check(`${mechanism}: a wrong password is refused`, async () => {
      const admin = secured(mechanism, "alice", "guess", { retry: { retries: 0 } }).admin();
      await assert.rejects(() => admin.connect(), /SASL|uthentication/);
    });
  }
  await check("a topic without rights is refused", async () => {
    const producer = secured("plain", "alice", password, { retry: { retries: 0 } })
      .producer({ createPartitioner: Partitioners.DefaultPartitioner });
    await producer.connect();
    await assert.rejects(
      () => producer.send({ topic: `${topic}-of-others`, messages: [{ value: "no" }] }),
      (error) => error.type === "TOPIC_AUTHORIZATION_FAILED" || error.cause?.type === "TOPIC_AUTHORIZATION_FAILED");
    await producer.disconnect();
  });
  process.exit(failed === 0 ? 0 : 1);
}

main().catch((error) => {
  console.log(`FAILED to run: ${error.stack}`);
  process.exit(1);
});
