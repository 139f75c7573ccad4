package transport

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestAccept(t *testing.T) {
	for header, want := range map[string]accepted{
		"":                                        {single: mediaJSON},
		" , ":                                     {single: mediaJSON},
		"*/*":                                     {single: mediaJSON},
		"application/json":                        {single: mediaJSON},
		"application/*":                           {single: mediaJSON},
		"application/graphql-response+json":       {single: mediaGraphQL},
		"Application/GraphQL-Response+JSON; Q=1":  {single: mediaGraphQL},
		"application/json; charset=utf-8":         {single: mediaJSON},
		"application/json; charset=iso-8859-1":    {},
		"application/json; profile=x":             {},
		"text/event-stream":                       {stream: true, before: true},
		"text/*":                                  {stream: true, before: true},
		"text/html":                               {},
		"application/json;q=0":                    {},
		"*/*;q=0":                                 {},
		"text/html, */*;q=0.8":                    {single: mediaJSON},
		"*/*, application/json;q=0":               {single: mediaGraphQL},
		"*/*, text/event-stream":                  {single: mediaJSON, stream: true, before: true},
		"application/json, text/event-stream":     {single: mediaJSON, stream: true},
		"text/event-stream;q=0.5, */*;q=0.4":      {single: mediaJSON, stream: true, before: true},
		"text/event-stream;q=0.4, */*;q=0.5":      {single: mediaJSON, stream: true},
		"text/event-stream, application/json;q=1": {single: mediaJSON, stream: true, before: true},
		// Apollo Client, urql for queries and for subscriptions
		"application/graphql-response+json,application/json;q=0.9":                                                                      {single: mediaGraphQL},
		"application/graphql-response+json, application/graphql+json, application/json, text/event-stream, multipart/mixed":             {single: mediaGraphQL, stream: true},
		"text/event-stream, multipart/mixed":                                                                                            {stream: true, before: true},
		"application/json;q=0.9, application/graphql-response+json;q=0.8":                                                               {single: mediaJSON},
		"application/json;q=0.9, application/graphql-response+json;q=0.91":                                                              {single: mediaGraphQL},
		"application/graphql-response+json;q=2, application/json;q=0.1":                                                                 {single: mediaJSON},
		"application/json;q=nonsense":                                                                                                   {},
		strings.Repeat("a/b,", maxRanges) + "application/json":                                                                          {},
		"multipart/mixed;deferSpec=20220824,application/graphql-response+json,application/json;q=0.9":                                   {single: mediaGraphQL},
		"multipart/mixed;boundary=\"graphql\";subscriptionSpec=1.0,application/graphql-response+json,application/json;q=0.9":            {single: mediaGraphQL},
		"multipart/mixed;boundary=graphql;subscriptionSpec=1.0,text/event-stream;q=0.1,application/graphql-response+json;q=0.9,*/*;q=0": {single: mediaGraphQL, stream: true},
	} {
		if got := acceptedBy(http.Header{"Accept": {header}}); got != want {
			t.Errorf("%q: %+v, want %+v", header, got, want)
		}
	}
	if got := acceptedBy(http.Header{"Accept": {"text/html", "text/event-stream"}}); !got.before {
		t.Errorf("two lines: %+v", got)
	}
	if got := acceptedBy(http.Header{}); got.single != mediaJSON {
		t.Errorf("no header: %+v", got)
	}
	for header, want := range map[string]bool{"": true, "*/*": true, "text/event-stream": true, "text/*": true, "application/json": false, "text/event-stream;q=0, */*": false} {
		if got := acceptsStream(http.Header{"Accept": {header}}); got != want {
			t.Errorf("%q takes a stream: %v", header, got)
		}
	}
}

func TestParseQuality(t *testing.T) {
	for s, want := range map[string]int{"1": 1000, "0": 0, "1.0": 1000, "1.000": 1000, "0.5": 500, "0.05": 50, "0.005": 5, "0.": 0, "1.": 1000} {
		if got, ok := parseQuality(s); !ok || got != want {
			t.Errorf("%q: %d, %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "2", "1.1", "1.001", "0.0005", "-0", "+1", ".5", "0.5.1", "0,5", " 1", "1e0", "0x1", "00"} {
		if got, ok := parseQuality(s); ok {
			t.Errorf("%q: %d", s, got)
		}
	}
}

// Whatever is sent, the answer is one of ours, and one that the client did not rule out.
func FuzzAccept(f *testing.F) {
	for _, seed := range []string{"", "*/*", "application/json;q=0.5,text/event-stream", "text/html, */*;q=0.8", "a/b;c=\"d,e\"", ",;q=,/", "application/json;q=0,*/*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got := acceptedBy(http.Header{"Accept": {header}})
		if !slices.Contains([]string{"", mediaJSON, mediaGraphQL}, got.single) || got.before && !got.stream {
			t.Fatalf("%q: %+v", header, got)
		}
		lower := strings.ToLower(header)
		if got.stream && !strings.Contains(lower, "text/") {
			t.Errorf("%q takes a stream", header)
		}
		if got.single == mediaGraphQL && !strings.Contains(lower, "/*") && !strings.Contains(lower, mediaGraphQL) {
			t.Errorf("%q takes %s", header, got.single)
		}
		// One more range of quality 0 rules a type out, unless the header is full.
		if strings.Trim(header, " \t,") != "" && len(rangesOf(header)) < maxRanges && !strings.ContainsAny(header, "\"\\") {
			if out := acceptedBy(http.Header{"Accept": {"application/json;q=0", header}}); out.single == mediaJSON {
				t.Errorf("%q takes JSON all the same: %+v", header, out)
			}
		}
	})
}
