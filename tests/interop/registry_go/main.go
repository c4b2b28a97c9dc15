// franz-go's registry client against ours: every call that it has for subjects, schemas, levels and modes.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	first  = `{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}`
	second = `{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},{"name":"note","type":"string","default":""}]}`
	broken = `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}`
	proto  = `syntax = "proto3"; message Order { int32 id = 1; }`
	json   = `{"type":"object","properties":{"id":{"type":"integer"}}}`
)

func check(what string, fine bool, err error) {
	if err != nil || !fine {
		fmt.Fprintf(os.Stderr, "failed: %s: %v\n", what, err)
		os.Exit(1)
	}
	fmt.Println("ok " + what)
}

func main() {
	ctx := context.Background()
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	check("client", true, err)
	subject := os.Args[2] + "-go"

	made, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: first})
	check("create", made.Version == 1 && made.ID > 0, err)
	again, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: first})
	check("create again", again.ID == made.ID, err)
	newer, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: second})
	check("second version", newer.Version == 2 && newer.ID != made.ID, err)
	_, err = client.CreateSchema(ctx, subject, sr.Schema{Schema: broken})
	var refused *sr.ResponseError
	check("incompatible", errors.As(err, &refused) && refused.StatusCode == 409, nil)
	for name, schema := range map[string]sr.Schema{
		"proto": {Schema: proto, Type: sr.TypeProtobuf},
		"json":  {Schema: json, Type: sr.TypeJSON},
	} {
		found, err := client.CreateSchema(ctx, subject+name, schema)
		check("create "+name, found.ID > 0, err)
		back, err := client.SchemaByID(ctx, found.ID)
		check("read "+name, back.Type == schema.Type, err)
	}
	subjects, err := client.Subjects(ctx)
	check("subjects", slices.Contains(subjects, subject), err)
	versions, err := client.SubjectVersions(ctx, subject)
	check("versions", slices.Equal(versions, []int{1, 2}), err)
	found, err := client.LookupSchema(ctx, subject, sr.Schema{Schema: second})
	check("look up", found.Version == 2, err)
	latest, err := client.SchemaByVersion(ctx, subject, -1)
	check("latest", latest.Version == 2, err)
	usages, err := client.SchemaUsagesByID(ctx, made.ID)
	check("usages", len(usages) > 0, err)
	result, err := client.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), subject, -1, sr.Schema{Schema: broken})
	check("compatibility", !result.Is && len(result.Messages) > 0, err)
	for _, one := range client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatNone}, subject) {
		check("set level", one.Level == sr.CompatNone, one.Err)
	}
	for _, one := range client.Compatibility(ctx, subject) {
		check("level", one.Level == sr.CompatNone, one.Err)
	}
	for _, one := range client.SetMode(ctx, sr.ModeReadOnly, subject) {
		check("set mode", one.Mode == sr.ModeReadOnly, one.Err)
	}
	_, err = client.CreateSchema(ctx, subject, sr.Schema{Schema: broken})
	check("read only", errors.As(err, &refused) && refused.ErrorCode == 42205, nil)
	for _, one := range client.ResetMode(ctx, subject) {
		check("reset mode", one.Mode == sr.ModeReadOnly, one.Err)
	}

	var serde sr.Serde
	serde.Register(made.ID, "", sr.EncodeFn(func(v any) ([]byte, error) { return []byte(v.(string)), nil }), sr.DecodeFn(func(b []byte, v any) error {
		*v.(*string) = string(b)
		return nil
	}))
	data, err := serde.Encode("body")
	check("frame", bytes.Equal(data[5:], []byte("body")) && data[0] == 0, err)

	deleted, err := client.DeleteSubject(ctx, subject, sr.SoftDelete)
	check("delete", slices.Equal(deleted, []int{1, 2}), err)
	deleted, err = client.DeleteSubject(ctx, subject, sr.HardDelete)
	check("delete for good", slices.Equal(deleted, []int{1, 2}), err)
}
