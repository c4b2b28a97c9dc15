package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const groupPartitions = 6

func fill(ctx context.Context, where string, partitions, each int) {
	producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(100_000))
	defer producer.Close()
	var sent []*kgo.Record
	for n := range each * partitions {
		sent = append(sent, &kgo.Record{Topic: where, Partition: int32(n % partitions), Value: []byte(fmt.Sprint(n))})
	}
	must(producer.ProduceSync(ctx, sent...).FirstErr())
}

// tally counts what all members of a group have read together.
type tally struct {
	sync.Mutex
	seen map[string]int
}

func (t *tally) add(record *kgo.Record) {
	t.Lock()
	defer t.Unlock()
	t.seen[string(record.Value)]++
}

func (t *tally) size() int {
	t.Lock()
	defer t.Unlock()
	return len(t.seen)
}

// member reads for a group until it is told to stop, committing after every poll.
func member(ctx context.Context, group, where string, together *tally, options ...kgo.Opt) (stop func()) {
	inner, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	options = append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(where), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	consumer := client(options...)
	go func() {
		defer close(done)
		for inner.Err() == nil {
			fetches := consumer.PollFetches(inner)
			fetches.EachRecord(together.add)
			consumer.CommitUncommittedOffsets(context.Background())
			consumer.AllowRebalance()
		}
		consumer.Close()
	}()
	return func() { cancel(); <-done }
}

func groups() {
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "round robin": kgo.RoundRobinBalancer(),
		"sticky": kgo.StickyBalancer(), "cooperative sticky": kgo.CooperativeStickyBalancer(),
	}
	for name, balancer := range balancers {
		check("a group with rebalances under load, "+name, func(ctx context.Context) {
			where := topic(ctx, groupPartitions, nil)
			group := where + "-group"
			together := &tally{seen: map[string]int{}}
			chosen := kgo.Balancers(balancer)
			first := member(ctx, group, where, together, chosen)
			second := member(ctx, group, where, together, chosen)
			go fill(ctx, where, groupPartitions, 3000)
			soon(func() bool { return together.size() > 1000 })
			third := member(ctx, group, where, together, chosen)
			soon(func() bool { return together.size() > 3000 })
			first()
			soon(func() bool { return together.size() == groupPartitions*3000 })
			second()
			third()
			committed, err := admin.FetchOffsets(ctx, group)
			must(err)
			for partition := range int32(groupPartitions) {
				at, _ := committed.Lookup(where, partition)
				equal(int64(3000), at.At)
			}
		})
	}
	check("a group goes on where it was", func(ctx context.Context) {
		where := topic(ctx, 1, nil)
		fill(ctx, where, 1, 100)
		next := 0
		for next < 100 {
			consumer := client(kgo.ConsumerGroup(where), kgo.ConsumeTopics(where), kgo.DisableAutoCommit(),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			fetches := consumer.PollRecords(ctx, 30)
			must(fetches.Err())
			for _, record := range fetches.Records() {
				equal(int64(next), record.Offset)
				next++
			}
			must(consumer.CommitUncommittedOffsets(ctx))
			consumer.Close()
		}
	})
	check("a static member", func(ctx context.Context) {
		where := topic(ctx, 1, nil)
		fill(ctx, where, 1, 10)
		for range 2 {
			consumer := client(kgo.ConsumerGroup(where), kgo.ConsumeTopics(where), kgo.InstanceID("one"),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
			equal(10, len(consumer.PollFetches(ctx).Records()))
			described, err := admin.DescribeGroups(ctx, where)
			must(err)
			equal(1, len(described[where].Members))
			equal("one", *described[where].Members[0].InstanceID)
			consumer.Close()
		}
		_, err := admin.LeaveGroup(ctx, kadm.LeaveGroup(where).InstanceIDs("one").Reason("enough"))
		must(err)
		soon(func() bool {
			described, err := admin.DescribeGroups(ctx, where)
			return err == nil && described[where].State == "Empty"
		})
	})
	check("offsets by an administrator", func(ctx context.Context) {
		where := topic(ctx, 2, nil)
		var offsets kadm.Offsets
		offsets.AddOffset(where, 0, 4, -1)
		offsets.AddOffset(where, 1, 5, -1)
		must(admin.CommitAllOffsets(ctx, where, offsets))
		got, err := admin.FetchOffsets(ctx, where)
		must(err)
		at, _ := got.Lookup(where, 1)
		equal(int64(5), at.At)
		var set kadm.TopicsSet
		set.Add(where, 0, 1)
		deleted, err := admin.DeleteOffsets(ctx, where, set)
		must(err)
		must(deleted.Error())
		got, err = admin.FetchOffsets(ctx, where)
		must(err)
		equal(0, len(got.Offsets()))
		listed, err := admin.ListGroups(ctx)
		must(err)
		equal("Empty", listed[where].State)
		removed, err := admin.DeleteGroup(ctx, where)
		must(err)
		must(removed.Err)
		_, err = admin.DeleteGroup(ctx, where)
		refused(kerr.GroupIDNotFound, err)
	})
}

func committed(ctx context.Context, where string, partition int32, count int) []*kgo.Record {
	return read(ctx, where, partition, kgo.NewOffset().AtStart(), count, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}

func transactions() {
	check("transactions: commit and abort", func(ctx context.Context) {
		where := topic(ctx, 1, nil)
		producer := client(kgo.TransactionalID(where))
		defer producer.Close()
		for n := range 10 {
			must(producer.BeginTransaction())
			must(producer.ProduceSync(ctx, &kgo.Record{Topic: where, Value: []byte(fmt.Sprint(n))}).FirstErr())
			must(producer.EndTransaction(ctx, kgo.TransactionEndTry(n%2 == 0)))
		}
		for at, record := range committed(ctx, where, 0, 5) {
			equal(fmt.Sprint(at*2), string(record.Value))
		}
	})
	check("transactions: a second producer fences the first", func(ctx context.Context) {
		where := topic(ctx, 1, nil)
		old := client(kgo.TransactionalID(where))
		defer old.Close()
		must(old.BeginTransaction())
		must(old.ProduceSync(ctx, &kgo.Record{Topic: where, Value: []byte("old")}).FirstErr())
		newer := client(kgo.TransactionalID(where))
		defer newer.Close()
		must(newer.BeginTransaction())
		must(newer.ProduceSync(ctx, &kgo.Record{Topic: where, Value: []byte("newer")}).FirstErr())
		must(newer.EndTransaction(ctx, kgo.TryCommit))
		equal(true, old.EndTransaction(ctx, kgo.TryCommit) != nil)
		equal("newer", string(committed(ctx, where, 0, 1)[0].Value))
	})
	check("transactions: consume, transform, produce exactly once with members that come and go", func(ctx context.Context) {
		input, output := topic(ctx, 3, nil), topic(ctx, 3, nil)
		const each = 1000
		fill(ctx, input, 3, each)
		var running sync.WaitGroup
		finished := func() bool {
			ends, err := admin.FetchOffsets(ctx, input+"-group")
			if err != nil {
				return false
			}
			for partition := range int32(3) {
				if at, _ := ends.Lookup(input, partition); at.At != each {
					return false
				}
			}
			return true
		}
		work := func(id string, most int) {
			defer running.Done()
			session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id),
				kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
				kgo.ConsumerGroup(input+"-group"), kgo.ConsumeTopics(input), kgo.FetchMaxPartitionBytes(4000),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			must(err)
			defer session.Close()
			for turn := range most {
				if ctx.Err() != nil || finished() {
					return
				}
				short, cancel := context.WithTimeout(ctx, time.Second)
				fetches := session.PollFetches(short)
				cancel()
				must(session.Begin())
				for _, record := range fetches.Records() {
					session.Produce(ctx, &kgo.Record{Topic: output, Partition: record.Partition, Value: record.Value}, nil)
				}
				_, err := session.End(ctx, kgo.TransactionEndTry(turn%4 != 3))
				must(err)
			}
		}
		for n, most := range []int{8, 1000, 1000} {
			running.Add(1)
			go work(fmt.Sprintf("%s-%d", input, n), most)
		}
		running.Wait()
		equal(true, finished())
		seen := map[string]bool{}
		for partition := range int32(3) {
			for _, record := range committed(ctx, output, partition, each) {
				seen[string(record.Value)] = true
			}
		}
		equal(3*each, len(seen))
	})
}
