// franz-go against the broker under test: go run . HOST:PORT
// One line per check on standard output; the exit code says whether all of them held.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap string
	admin     *kadm.Client
	failed    int
	unique    int
)

func check(name string, body func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	defer func() {
		if problem := recover(); problem != nil {
			failed++
			fmt.Printf("FAILED %s: %v\n", name, problem)
			return
		}
		fmt.Printf("ok %s\n", name)
	}()
	body(ctx)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal[T comparable](expected, got T) {
	if expected != got {
		panic(fmt.Sprintf("expected %v, got %v", expected, got))
	}
}

func refused(expected *kerr.Error, err error) {
	if !errors.Is(err, expected) {
		panic(fmt.Sprintf("expected %v, got %v", expected, err))
	}
}

// soon: Kafka answers an admin request when the controller has it; the broker may show it a moment later.
func soon(condition func() bool) {
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			panic("it never became true")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, options...)...)
	must(err)
	return made
}

func topic(ctx context.Context, partitions int32, configs map[string]string) string {
	unique++
	name := fmt.Sprintf("go-%d-%d", time.Now().UnixNano(), unique)
	values := map[string]*string{}
	for key, value := range configs {
		values[key] = &value
	}
	_, err := admin.CreateTopic(ctx, partitions, 1, values, name)
	must(err)
	soon(func() bool {
		ends, err := admin.ListEndOffsets(ctx, name)
		return err == nil && ends.Error() == nil && len(ends[name]) == int(partitions)
	})
	return name
}

func read(ctx context.Context, name string, partition int32, from kgo.Offset, count int, options ...kgo.Opt) []*kgo.Record {
	options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: {partition: from}}))
	consumer := client(options...)
	defer consumer.Close()
	var records []*kgo.Record
	for len(records) < count {
		fetches := consumer.PollFetches(ctx)
		if problems := fetches.Errors(); len(problems) > 0 {
			panic(problems[0].Err)
		}
		records = append(records, fetches.Records()...)
	}
	equal(count, len(records))
	return records
}

func roundTrip(codec kgo.CompressionCodec) func(context.Context) {
	return func(ctx context.Context) {
		name := topic(ctx, 1, nil)
		var sent []*kgo.Record
		for n := range 300 {
			sent = append(sent, &kgo.Record{Topic: name, Key: []byte(strconv.Itoa(n)), Value: bytes.Repeat([]byte("again "), 30)})
		}
		sent = append(sent,
			&kgo.Record{Topic: name, Value: []byte("no key")},
			&kgo.Record{Topic: name, Key: []byte("no value")},
			&kgo.Record{Topic: name, Key: []byte{}, Value: []byte{}},
			&kgo.Record{Topic: name, Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "twice", Value: []byte("1")}, {Key: "twice", Value: []byte("2")}, {Key: "null"}}},
			&kgo.Record{Topic: name, Value: bytes.Repeat([]byte("x"), 900_000)},
		)
		producer := client(kgo.ProducerBatchCompression(codec))
		defer producer.Close()
		must(producer.ProduceSync(ctx, sent...).FirstErr())
		got := read(ctx, name, 0, kgo.NewOffset().AtStart(), len(sent))
		for n := range sent {
			equal(int64(n), got[n].Offset)
			equal(sent[n].Key == nil, got[n].Key == nil)
			equal(sent[n].Value == nil, got[n].Value == nil)
			equal(string(sent[n].Key), string(got[n].Key))
			equal(string(sent[n].Value), string(got[n].Value))
			equal(len(sent[n].Headers), len(got[n].Headers))
			for h := range sent[n].Headers {
				equal(sent[n].Headers[h].Key, got[n].Headers[h].Key)
				equal(string(sent[n].Headers[h].Value), string(got[n].Headers[h].Value))
			}
		}
	}
}

func records() {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		check("records come back the same, "+name, roundTrip(codec))
	}
	for name, acks := range map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()} {
		check("acks="+name, func(ctx context.Context) {
			where := topic(ctx, 1, nil)
			producer := client(kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
			defer producer.Close()
			must(producer.ProduceSync(ctx, &kgo.Record{Topic: where, Value: []byte("v")}).FirstErr())
			equal(1, len(read(ctx, where, 0, kgo.NewOffset().AtStart(), 1)))
		})
	}
	check("timestamps of the producer and of the broker", func(ctx context.Context) {
		moment := time.UnixMilli(1_600_000_000_123)
		producer := client()
		defer producer.Close()
		kept := topic(ctx, 1, map[string]string{"retention.ms": "-1"})
		must(producer.ProduceSync(ctx, &kgo.Record{Topic: kept, Timestamp: moment}).FirstErr())
		got := read(ctx, kept, 0, kgo.NewOffset().AtStart(), 1)[0]
		equal(moment.UnixMilli(), got.Timestamp.UnixMilli())
		equal(int8(0), got.Attrs.TimestampType())
		stamped := topic(ctx, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
		must(producer.ProduceSync(ctx, &kgo.Record{Topic: stamped, Timestamp: moment}).FirstErr())
		got = read(ctx, stamped, 0, kgo.NewOffset().AtStart(), 1)[0]
		equal(int8(1), got.Attrs.TimestampType())
		equal(true, time.Since(got.Timestamp) < time.Hour)
	})
	check("a message over the limit", func(ctx context.Context) {
		where := topic(ctx, 1, nil)
		producer := client(kgo.ProducerBatchMaxBytes(5_000_000), kgo.MaxBufferedBytes(50_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
		defer producer.Close()
		refused(kerr.MessageTooLarge, producer.ProduceSync(ctx, &kgo.Record{Topic: where, Value: make([]byte, 2_000_000)}).FirstErr())
	})
	check("ten thousand records in order, idempotent", func(ctx context.Context) {
		where := topic(ctx, 1, nil)
		producer := client(kgo.ProducerLinger(0), kgo.MaxBufferedRecords(20_000))
		defer producer.Close()
		var sent []*kgo.Record
		for n := range 10_000 {
			sent = append(sent, &kgo.Record{Topic: where, Value: []byte(strconv.Itoa(n))})
		}
		must(producer.ProduceSync(ctx, sent...).FirstErr())
		for n, record := range read(ctx, where, 0, kgo.NewOffset().AtStart(), 10_000) {
			equal(strconv.Itoa(n), string(record.Value))
		}
	})
	check("partitioners", func(ctx context.Context) {
		where := topic(ctx, 12, nil)
		producer := client(kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
		defer producer.Close()
		for key, hash := range map[string]int32{"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107} {
			record, err := producer.ProduceSync(ctx, &kgo.Record{Topic: where, Key: []byte(key)}).First()
			must(err)
			equal((hash&0x7fffffff)%12, record.Partition)
		}
		for _, partitioner := range []kgo.Partitioner{kgo.RoundRobinPartitioner(), kgo.LeastBackupPartitioner(), kgo.UniformBytesPartitioner(1000, true, true, nil)} {
			other := client(kgo.RecordPartitioner(partitioner))
			for range 20 {
				must(other.ProduceSync(ctx, &kgo.Record{Topic: where, Value: []byte("v")}).FirstErr())
			}
			other.Close()
		}
		manual := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		defer manual.Close()
		record, err := manual.ProduceSync(ctx, &kgo.Record{Topic: where, Partition: 7}).First()
		must(err)
		equal(int32(7), record.Partition)
	})
	check("reading from an offset, by time, and at the end", func(ctx context.Context) {
		where := topic(ctx, 1, map[string]string{"retention.ms": "-1"})
		producer := client()
		defer producer.Close()
		for n := range 10 {
			at := time.UnixMilli(1_600_000_000_000 + int64(n)*100)
			must(producer.ProduceSync(ctx, &kgo.Record{Topic: where, Value: []byte(strconv.Itoa(n)), Timestamp: at}).FirstErr())
		}
		equal("7", string(read(ctx, where, 0, kgo.NewOffset().At(7), 3)[0].Value))
		equal("5", string(read(ctx, where, 0, kgo.NewOffset().AfterMilli(1_600_000_000_450), 5)[0].Value))
		equal("8", string(read(ctx, where, 0, kgo.NewOffset().AtEnd().Relative(-2), 2)[0].Value))
		equal(10, len(read(ctx, where, 0, kgo.NewOffset().AtStart(), 10, kgo.FetchIsolationLevel(kgo.ReadCommitted()))))
		equal(10, len(read(ctx, where, 0, kgo.NewOffset().AtStart(), 10, kgo.DisableFetchSessions())))
	})
	check("a topic made by writing to it", func(ctx context.Context) {
		where := fmt.Sprintf("go-auto-%d", time.Now().UnixNano())
		producer := client(kgo.AllowAutoTopicCreation())
		defer producer.Close()
		must(producer.ProduceSync(ctx, &kgo.Record{Topic: where, Value: []byte("first")}).FirstErr())
		equal("first", string(read(ctx, where, 0, kgo.NewOffset().AtStart(), 1)[0].Value))
	})
	check("an unknown topic", func(ctx context.Context) {
		producer := client(kgo.UnknownTopicRetries(1))
		defer producer.Close()
		err := producer.ProduceSync(ctx, &kgo.Record{Topic: fmt.Sprintf("go-none-%d", time.Now().UnixNano())}).FirstErr()
		refused(kerr.UnknownTopicOrPartition, err)
	})
}

func administration() {
	check("the cluster", func(ctx context.Context) {
		metadata, err := admin.BrokerMetadata(ctx)
		must(err)
		equal(1, len(metadata.Brokers))
		equal(metadata.Brokers[0].NodeID, metadata.Controller)
		equal(bootstrap, fmt.Sprintf("%s:%d", metadata.Brokers[0].Host, metadata.Brokers[0].Port))
	})
	check("topics", func(ctx context.Context) {
		where := topic(ctx, 3, nil)
		listed, err := admin.ListTopics(ctx, where)
		must(err)
		equal(3, len(listed[where].Partitions))
		_, err = admin.CreateTopic(ctx, 1, 1, nil, where)
		refused(kerr.TopicAlreadyExists, err)
		_, err = admin.CreateTopic(ctx, 1, 3, nil, where+"-b")
		refused(kerr.InvalidReplicationFactor, err)
		_, err = admin.CreateTopic(ctx, 1, 1, nil, "a b")
		refused(kerr.InvalidTopicException, err)
		updated, err := admin.CreatePartitions(ctx, 2, where)
		must(err)
		must(updated.Error())
		soon(func() bool {
			listed, err := admin.ListTopics(ctx, where)
			return err == nil && len(listed[where].Partitions) == 5
		})
		_, err = admin.DeleteTopic(ctx, where)
		must(err)
		_, err = admin.DeleteTopic(ctx, where)
		refused(kerr.UnknownTopicOrPartition, err)
	})
	check("settings", func(ctx context.Context) {
		where := topic(ctx, 1, map[string]string{"retention.ms": "5000"})
		value := func(name string) string {
			described, err := admin.DescribeTopicConfigs(ctx, where)
			must(err)
			for _, config := range described[0].Configs {
				if config.Key == name {
					return config.MaybeValue()
				}
			}
			panic("no " + name)
		}
		equal("5000", value("retention.ms"))
		seconds := "60000"
		altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.ms", Value: &seconds}, {Op: kadm.DeleteConfig, Name: "retention.ms"}}, where)
		must(err)
		must(altered[0].Err)
		soon(func() bool { return value("segment.ms") == "60000" && value("retention.ms") == "604800000" })
		bad := "soon"
		altered, err = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.ms", Value: &bad}}, where)
		must(err)
		refused(kerr.InvalidConfig, altered[0].Err)
		brokers, err := admin.DescribeBrokerConfigs(ctx)
		must(err)
		equal(true, len(brokers) > 0)
	})
	check("offsets and delete records", func(ctx context.Context) {
		where := topic(ctx, 1, nil)
		producer := client()
		defer producer.Close()
		for n := range 5 {
			at := time.Now().Add(time.Duration(n-10) * time.Second)
			must(producer.ProduceSync(ctx, &kgo.Record{Topic: where, Value: []byte(strconv.Itoa(n)), Timestamp: at}).FirstErr())
		}
		var before kadm.Offsets
		before.AddOffset(where, 0, 3, -1)
		deleted, err := admin.DeleteRecords(ctx, before)
		must(err)
		must(deleted.Error())
		starts, err := admin.ListStartOffsets(ctx, where)
		must(err)
		equal(int64(3), starts[where][0].Offset)
		ends, err := admin.ListEndOffsets(ctx, where)
		must(err)
		equal(int64(5), ends[where][0].Offset)
		newest, err := admin.ListMaxTimestampOffsets(ctx, where)
		must(err)
		equal(int64(4), newest[where][0].Offset)
	})
	check("log folders", func(ctx context.Context) {
		where := topic(ctx, 1, nil)
		producer := client()
		defer producer.Close()
		must(producer.ProduceSync(ctx, &kgo.Record{Topic: where, Value: make([]byte, 1000)}).FirstErr())
		folders, err := admin.DescribeAllLogDirs(ctx, nil)
		must(err)
		sizes := 0
		folders.Each(func(folder kadm.DescribedLogDir) {
			must(folder.Err)
			if found, exists := folder.Topics.Lookup(where, 0); exists && found.Size > 0 {
				sizes++
			}
		})
		equal(1, sizes)
	})
	check("reassignments, elections, producers", func(ctx context.Context) {
		where := topic(ctx, 1, nil)
		listed, err := admin.ListPartitionReassignments(ctx, nil)
		must(err)
		equal(0, len(listed))
		var set kadm.TopicsSet
		set.Add(where, 0)
		elected, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		must(err)
		refused(kerr.ElectionNotNeeded, elected[where][0].Err)
		producer := client()
		defer producer.Close()
		must(producer.ProduceSync(ctx, &kgo.Record{Topic: where}).FirstErr())
		producers, err := admin.DescribeProducers(ctx, set)
		must(err)
		equal(1, len(producers.SortedProducers()))
	})
	check("versions", func(ctx context.Context) {
		versions, err := admin.ApiVersions(ctx)
		must(err)
		for _, broker := range versions {
			must(broker.Err)
			_, highest, exists := broker.KeyVersions(0)
			equal(true, exists)
			equal(true, highest >= 13)
		}
	})
}

func main() {
	if os.Args[1] == "secured" {
		checkSecured(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
		if failed > 0 {
			os.Exit(1)
		}
		return
	}
	bootstrap = os.Args[1]
	shared := client()
	admin = kadm.NewClient(shared)
	records()
	administration()
	groups()
	transactions()
	shared.Close()
	if failed > 0 {
		os.Exit(1)
	}
}
