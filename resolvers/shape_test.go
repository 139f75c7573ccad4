package resolvers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
)

func operation(t *testing.T, query string) *graphql.OperationContext {
	t.Helper()
	doc, err := parser.ParseQuery(&ast.Source{Input: query})
	if err != nil {
		t.Fatal(err)
	}
	validator.Walk(schemaOf(), doc, &validator.Events{}) // binds fragments
	return &graphql.OperationContext{Operation: doc.Operations[0], Doc: doc}
}

func TestShape(t *testing.T) {
	doubling := func(levels int) string {
		var b strings.Builder
		b.WriteString("{ ...f0 ...f0 }\n")
		for i := range levels {
			fmt.Fprintf(&b, "fragment f%d on Query { ...f%d ...f%d }\n", i, i+1, i+1)
		}
		fmt.Fprintf(&b, "fragment f%d on Query { catalogRevision }\n", levels)
		return b.String()
	}
	for name, c := range map[string]struct {
		query string
		ok    bool
	}{
		"small":          {"{ viewer { subject } }", true},
		"deepest":        {"{ run(id:1) { agent { harness { id } } } }", true},
		"too deep":       {"{ run(id:1) { agent { harness { models { id } } } } }", false},
		"deep fragment":  {"{ run(id:1) { ...r } } fragment r on Run { agent { harness { models { id } } } }", false},
		"inline":         {"{ run(id:1) { ... on Run { agent { harness { id } } } } }", true},
		"wide":           {"{" + strings.Repeat(" catalogRevision", 41) + "}", false},
		"doubling":       {doubling(4), true},
		"much doubling":  {doubling(200), false},
		"just wide":      {"{" + strings.Repeat(" catalogRevision", 40) + "}", true},
		"introspection?": {"{ __typename }", true},
	} {
		err := Shape{MaxDepth: 4, MaxFields: 40}.MutateOperationContext(context.Background(), operation(t, c.query))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && err.Extensions["code"] != "TOO_COMPLEX" {
			t.Errorf("%s: code %v", name, err.Extensions["code"])
		}
	}
}

func TestIntrospectionIsFoundWhereverItHides(t *testing.T) {
	for query, want := range map[string]bool{
		"{ viewer { subject } }":                 false,
		"{ __typename }":                         false,
		"{ a: __schema { queryType { name } } }": true,
		"{ ...f } fragment f on Query { ... { __type(name: \"Run\") { name } } }": true,
		"{ ...f } fragment f on Query { catalogRevision }":                        false,
	} {
		if got := introspects(operation(t, query).Operation.SelectionSet, map[string]bool{}); got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
}
