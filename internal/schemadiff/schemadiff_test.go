package schemadiff

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// frame is the schema around what a case changes.
const frame = `
directive @authz(relation: String!, arg: String) on FIELD_DEFINITION
directive @public(reason: String!) on FIELD_DEFINITION
`

// TestCompare has each kind of change, with what is said of it and nothing else.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name, before, after string
		want                []string // "LEVEL path", in order
	}{
		{name: "nothing", before: `type Query { a: Int }`, after: `type Query { a: Int }`},
		{name: "descriptions and order", before: `type Query { a: Int b: Int }`, after: `"x" type Query { "y" b: Int a: Int }`},
		{name: "field added", before: `type Query { a: Int }`, after: `type Query { a: Int b(c: Int!): Int }`},
		{name: "field removed", before: `type Query { a: Int b: Int }`, after: `type Query { a: Int }`,
			want: []string{"BREAKING Query.b"}},
		{name: "field renamed", before: `type Query { a: Int b: Int }`, after: `type Query { a: Int c: Int }`,
			want: []string{"BREAKING Query.b"}},
		{name: "deprecated field removed", before: `type Query { a: Int b: Int @deprecated(reason: "a") }`, after: `type Query { a: Int }`,
			want: []string{"NOTICE Query.b"}},
		{name: "field deprecated", before: `type Query { a: Int b: Int }`, after: `type Query { a: Int b: Int @deprecated(reason: "a") }`},
		{name: "field of an interface removed", before: `interface I { a: Int b: Int } type T implements I { a: Int b: Int } type Query { i: I }`,
			after: `interface I { a: Int } type T implements I { a: Int b: Int } type Query { i: I }`,
			want:  []string{"BREAKING I.b"}},
		{name: "answer may be null now", before: `type Query { a: Int! }`, after: `type Query { a: Int }`,
			want: []string{"BREAKING Query.a"}},
		{name: "answer is never null now", before: `type Query { a: Int }`, after: `type Query { a: Int! }`},
		{name: "elements may be null now", before: `type Query { a: [Int!]! }`, after: `type Query { a: [Int]! }`,
			want: []string{"BREAKING Query.a"}},
		{name: "elements are never null now", before: `type Query { a: [Int] }`, after: `type Query { a: [Int!] }`},
		{name: "answer of another type", before: `type Query { a: Int }`, after: `type Query { a: Float }`,
			want: []string{"BREAKING Query.a"}},
		{name: "answer became a list", before: `type Query { a: Int }`, after: `type Query { a: [Int] }`,
			want: []string{"BREAKING Query.a"}},

		{name: "argument removed", before: `type Query { a(b: Int): Int }`, after: `type Query { a: Int }`,
			want: []string{"BREAKING Query.a(b:)"}},
		{name: "deprecated argument removed", before: `type Query { a(b: Int @deprecated): Int }`, after: `type Query { a: Int }`,
			want: []string{"NOTICE Query.a(b:)"}},
		{name: "optional argument added", before: `type Query { a: Int }`, after: `type Query { a(b: Int c: Int! = 1): Int }`},
		{name: "required argument added", before: `type Query { a: Int }`, after: `type Query { a(b: Int!): Int }`,
			want: []string{"BREAKING Query.a(b:)"}},
		{name: "argument became required", before: `type Query { a(b: Int): Int }`, after: `type Query { a(b: Int!): Int }`,
			want: []string{"BREAKING Query.a(b:)"}},
		{name: "argument lost its default", before: `type Query { a(b: Int! = 1): Int }`, after: `type Query { a(b: Int!): Int }`,
			want: []string{"BREAKING Query.a(b:)"}},
		{name: "argument takes no null", before: `type Query { a(b: Int = 1): Int }`, after: `type Query { a(b: Int! = 1): Int }`,
			want: []string{"BREAKING Query.a(b:)"}},
		{name: "argument takes null", before: `type Query { a(b: Int! = 1): Int }`, after: `type Query { a(b: Int = 1): Int }`},
		{name: "argument of another type", before: `type Query { a(b: Int): Int }`, after: `type Query { a(b: String): Int }`,
			want: []string{"BREAKING Query.a(b:)"}},
		{name: "another default", before: `type Query { a(b: Int = 1): Int }`, after: `type Query { a(b: Int = 2): Int }`,
			want: []string{"BREAKING Query.a(b:)"}},
		{name: "elements of an argument are not null", before: `type Query { a(b: [Int]): Int }`, after: `type Query { a(b: [Int!]): Int }`,
			want: []string{"BREAKING Query.a(b:)"}},

		{name: "input field removed", before: `input I { a: Int b: Int } type Query { a(i: I): Int }`,
			after: `input I { a: Int } type Query { a(i: I): Int }`,
			want:  []string{"BREAKING I.b"}},
		{name: "deprecated input field removed", before: `input I { a: Int b: Int @deprecated } type Query { a(i: I): Int }`,
			after: `input I { a: Int } type Query { a(i: I): Int }`,
			want:  []string{"NOTICE I.b"}},
		{name: "optional input field added", before: `input I { a: Int } type Query { a(i: I): Int }`,
			after: `input I { a: Int b: Int } type Query { a(i: I): Int }`},
		{name: "required input field added", before: `input I { a: Int } type Query { a(i: I): Int }`,
			after: `input I { a: Int b: Int! } type Query { a(i: I): Int }`,
			want:  []string{"BREAKING I.b"}},
		{name: "input field became required", before: `input I { a: Int b: Int } type Query { a(i: I): Int }`,
			after: `input I { a: Int b: Int! } type Query { a(i: I): Int }`,
			want:  []string{"BREAKING I.b"}},
		{name: "input field is optional", before: `input I { a: Int b: Int! } type Query { a(i: I): Int }`,
			after: `input I { a: Int b: Int } type Query { a(i: I): Int }`},
		{name: "input became one of its fields", before: `input I { a: Int b: Int } type Query { a(i: I): Int }`,
			after: `input I @oneOf { a: Int b: Int } type Query { a(i: I): Int }`,
			want:  []string{"BREAKING I"}},

		{name: "enum value removed", before: `enum E { A B } type Query { e: E }`, after: `enum E { A } type Query { e: E }`,
			want: []string{"BREAKING E.B"}},
		{name: "deprecated enum value removed", before: `enum E { A B @deprecated } type Query { e: E }`, after: `enum E { A } type Query { e: E }`,
			want: []string{"NOTICE E.B"}},
		{name: "enum value added", before: `enum E { A } type Query { e: E }`, after: `enum E { A B } type Query { e: E }`},
		{name: "member of a union removed", before: `type A { x: Int } type B { x: Int } union U = A | B type Query { u: U a: A b: B }`,
			after: `type A { x: Int } type B { x: Int } union U = A type Query { u: U a: A b: B }`,
			want:  []string{"BREAKING U"}},
		{name: "member of a union added", before: `type A { x: Int } type B { x: Int } union U = A type Query { u: U a: A b: B }`,
			after: `type A { x: Int } type B { x: Int } union U = A | B type Query { u: U a: A b: B }`,
			want:  []string{"NOTICE U"}},
		{name: "interface left", before: `interface I { a: Int } type T implements I { a: Int } type Query { i: I t: T }`,
			after: `interface I { a: Int } type T { a: Int } type Query { i: I t: T }`,
			want:  []string{"BREAKING T"}},

		{name: "type removed", before: `type T { a: Int } type Query { a: Int t: T }`, after: `type Query { a: Int }`,
			want: []string{"BREAKING Query.t", "BREAKING T"}},
		{name: "type renamed", before: `type T { a: Int } type Query { t: T }`, after: `type V { a: Int } type Query { t: V }`,
			want: []string{"BREAKING Query.t", "BREAKING T"}},
		{name: "type of a deprecated field removed", before: `type T { a: Int } type Query { a: Int t: T @deprecated }`, after: `type Query { a: Int }`,
			want: []string{"NOTICE Query.t", "NOTICE T"}},
		{name: "kind changed", before: `type T { a: Int } type Query { t: T }`, after: `interface T { a: Int } type V implements T { a: Int } type Query { t: T }`,
			want: []string{"BREAKING T"}},
		{name: "mutations removed", before: `type Query { a: Int } type Mutation { a: Int }`, after: `type Query { a: Int }`,
			want: []string{"BREAKING Mutation", "BREAKING schema.mutation"}},
		{name: "specification of a scalar", before: `scalar S @specifiedBy(url: "https://a.example") type Query { s: S }`,
			after: `scalar S @specifiedBy(url: "https://b.example") type Query { s: S }`,
			want:  []string{"NOTICE S"}},

		{name: "client's directive removed", before: `directive @live on FIELD type Query { a: Int }`, after: `type Query { a: Int }`,
			want: []string{"BREAKING @live"}},
		{name: "client's directive in fewer places", before: `directive @live on FIELD | QUERY type Query { a: Int }`,
			after: `directive @live on FIELD type Query { a: Int }`,
			want:  []string{"BREAKING @live"}},
		{name: "argument of a client's directive", before: `directive @live(a: Int) on FIELD type Query { a: Int }`,
			after: `directive @live(a: Int!) on FIELD type Query { a: Int }`,
			want:  []string{"BREAKING @live(a:)"}},
		{name: "directive of the schema removed", before: `directive @ours on OBJECT type Query { a: Int }`, after: `type Query { a: Int }`},

		{name: "protection removed", before: `type Query { a: Int @authz(relation: "x") }`, after: `type Query { a: Int }`,
			want: []string{"EXPOSED Query.a"}},
		{name: "protection opened", before: `type Query { a: Int @authz(relation: "x") }`, after: `type Query { a: Int @public(reason: "y") }`,
			want: []string{"SECURITY Query.a"}},
		{name: "another permission", before: `type Query { a: Int @authz(relation: "x") }`, after: `type Query { a: Int @authz(relation: "y") }`,
			want: []string{"SECURITY Query.a"}},
		{name: "another object", before: `type Query { a(i: ID): Int @authz(relation: "x", arg: "i") }`, after: `type Query { a(i: ID): Int @authz(relation: "x") }`,
			want: []string{"SECURITY Query.a"}},
		{name: "order of a directive's arguments", before: `type Query { a(i: ID): Int @authz(relation: "x", arg: "i") }`,
			after: `type Query { a(i: ID): Int @authz(arg: "i", relation: "x") }`},
		{name: "protection added", before: `type Query { a: Int @public(reason: "y") }`, after: `type Query { a: Int @authz(relation: "y") }`,
			want: []string{"SECURITY Query.a"}},
		{name: "worst first", before: `type Query { a: Int @authz(relation: "x") b: Int @deprecated c: Int d: Int @authz(relation: "x") }`,
			after: `type Query { a: Int d: Int @authz(relation: "y") }`,
			want:  []string{"BREAKING Query.c", "EXPOSED Query.a", "SECURITY Query.d", "NOTICE Query.b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes, err := Compare(frame+c.before, frame+c.after)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, ch := range changes {
				got = append(got, ch.Level.String()+" "+ch.Path)
				if fails := strings.HasPrefix(got[len(got)-1], "BREAKING") || strings.HasPrefix(got[len(got)-1], "EXPOSED"); ch.Level.Fails() != fails {
					t.Errorf("%s: fails is %t", ch, ch.Level.Fails())
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q; in full: %v", got, c.want, changes)
			}
		})
	}
}

// TestCompareOwnSchema: the schema does not differ from itself, and the loss of one line of it is noticed.
func TestCompareOwnSchema(t *testing.T) {
	raw, err := os.ReadFile("../../schema.graphqls")
	if err != nil {
		t.Fatal(err)
	}
	schema := string(raw)
	if changes, err := Compare(schema, schema); err != nil || len(changes) > 0 {
		t.Fatalf("the schema differs from itself: %v, %v", changes, err)
	}
	const line = "  \"Stable name of the caller, as authentication found it.\"\n  subject: String!\n"
	changes, err := Compare(schema, strings.Replace(schema, line, "", 1))
	if err != nil || len(changes) != 1 || !changes[0].Level.Fails() {
		t.Fatalf("without a field: %v, %v", changes, err)
	}
}

func TestCompareNoSchema(t *testing.T) {
	const good = `type Query { a: Int }`
	for _, c := range []struct{ before, after, names string }{
		{"type {", good, "before"}, {good, "type Query { a: Missing }", "after"},
	} {
		if _, err := Compare(c.before, c.after); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("Compare(%q, %q) says %v, want an error that names %s", c.before, c.after, err, c.names)
		}
	}
}
