package event

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

type schemaKind uint8

const (
	kindFree   schemaKind = iota // any JSON
	kindScalar                   // string, number or boolean; encoding/json checks which
	kindObject                   // exactly the named fields
	kindMap                      // any keys
	kindArray
)

// schema says which JSON shape a Go type decodes from.
type schema struct {
	kind   schemaKind
	index  map[string]int // field name to place in fields
	fields []*schema
	elem   *schema
}

var (
	freeSchema   = &schema{kind: kindFree}
	scalarSchema = &schema{kind: kindScalar}
	mapSchema    = &schema{kind: kindMap}
)

var (
	rawMessageType = reflect.TypeFor[json.RawMessage]()
	timeType       = reflect.TypeFor[time.Time]()
)

// schemaOf derives the schema from a type's json tags. It panics on a type that events do not use, at start-up.
func schemaOf(t reflect.Type) *schema {
	switch t {
	case rawMessageType:
		return freeSchema
	case timeType:
		return scalarSchema
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Map:
		return mapSchema
	case reflect.Slice:
		return &schema{kind: kindArray, elem: schemaOf(t.Elem())}
	case reflect.Struct:
		sc := &schema{kind: kindObject, index: make(map[string]int, t.NumField())}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			sc.index[name] = len(sc.fields)
			sc.fields = append(sc.fields, schemaOf(f.Type))
		}
		return sc
	case reflect.String, reflect.Bool, reflect.Int64, reflect.Float64:
		return scalarSchema
	}
	panic(fmt.Sprintf("event: no schema for %s", t))
}
