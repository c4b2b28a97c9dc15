// Over TLS with a login: go run . secured HOST:PORT CA.pem ADMIN_HOST:PORT PASSWORD
// The first address is SASL_SSL with alice's passwords, the other one that of a super user, in clear text. Sessions last two
// seconds there.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func logins(user, password string) map[string]sasl.Mechanism {
	return map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: user, Pass: password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: user, Pass: password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: user, Pass: password}.AsSha512Mechanism(),
	}
}

func checkSecured(address, authority, adminAddress, password string) {
	pem, err := os.ReadFile(authority)
	must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	secured := func(login sasl.Mechanism, options ...kgo.Opt) *kgo.Client {
		bootstrap = address
		return client(append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: pool}), kgo.SASL(login))...)
	}
	bootstrap = adminAddress
	super := client()
	defer super.Close()
	admin = kadm.NewClient(super)

	for name, login := range logins("alice", password) {
		check(name+": refused without rights, then produce and consume in a group", func(ctx context.Context) {
			topicName := "go-secured-" + name
			_, err := admin.CreateTopic(ctx, 1, 1, nil, topicName)
			must(err)
			producer := secured(login, kgo.DefaultProduceTopic(topicName))
			defer producer.Close()
			refused(kerr.TopicAuthorizationFailed, producer.ProduceSync(ctx, &kgo.Record{Value: []byte("no")}).FirstErr())
			rights := kadm.NewACLs().Allow("User:alice").Topics(topicName).Operations(kadm.OpRead, kadm.OpWrite).
				ResourcePatternType(kadm.ACLPatternLiteral)
			groups := kadm.NewACLs().Allow("User:alice").Groups("go-secured").Operations(kadm.OpRead).
				ResourcePatternType(kadm.ACLPatternPrefixed)
			for _, each := range []*kadm.ACLBuilder{rights, groups} {
				made, err := admin.CreateACLs(ctx, each)
				must(err)
				must(made[0].Err)
			}
			writer := secured(login, kgo.DefaultProduceTopic(topicName))
			defer writer.Close()
			must(writer.ProduceSync(ctx, &kgo.Record{Value: []byte("yes")}).FirstErr())
			reader := secured(login, kgo.ConsumerGroup("go-secured-"+name), kgo.ConsumeTopics(topicName),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			defer reader.Close()
			fetches := reader.PollFetches(ctx)
			must(fetches.Err())
			equal("yes", string(fetches.Records()[0].Value))
		})
		check(name+": a session logs in again and again", func(ctx context.Context) {
			writer := secured(login, kgo.DefaultProduceTopic("go-secured-"+name))
			defer writer.Close()
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				must(writer.ProduceSync(ctx, &kgo.Record{Value: []byte("again")}).FirstErr())
			}
		})
	}
	for name, login := range logins("alice", "guess") {
		check(name+": a wrong password is refused", func(ctx context.Context) {
			wrong := secured(login, kgo.RetryTimeout(5*time.Second))
			defer wrong.Close()
			err := wrong.Ping(ctx)
			if !errors.Is(err, kerr.SaslAuthenticationFailed) {
				panic(fmt.Sprintf("expected a refused login, got %v", err))
			}
		})
	}
	check("ACLs are described and deleted", func(ctx context.Context) {
		wanted := kadm.NewACLs().Allow("User:alice").AllowHosts().Topics("go-secured-PLAIN").Operations().
			ResourcePatternType(kadm.ACLPatternAny)
		described, err := admin.DescribeACLs(ctx, wanted)
		must(err)
		found := 0
		for _, each := range described {
			must(each.Err)
			found += len(each.Described)
		}
		equal(2, found)
		gone, err := admin.DeleteACLs(ctx, wanted)
		must(err)
		count := 0
		for _, each := range gone {
			must(each.Err)
			count += len(each.Deleted)
		}
		equal(2, count)
	})
	check("SCRAM users are made, described, used and deleted", func(ctx context.Context) {
		made, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{
			{User: "carol", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "carols-word"}})
		must(err)
		must(made.Error())
		described, err := admin.DescribeUserSCRAMs(ctx, "carol")
		must(err)
		equal(int32(4096), described["carol"].CredInfos[0].Iterations)
		carol := secured(scram.Auth{User: "carol", Pass: "carols-word"}.AsSha256Mechanism())
		defer carol.Close()
		must(carol.Ping(ctx))
		gone, err := admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: "carol", Mechanism: kadm.ScramSha256}}, nil)
		must(err)
		must(gone.Error())
	})
}
