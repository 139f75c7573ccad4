package agent

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func good() Blueprint {
	return Blueprint{
		Name: "Helper", Slug: "helper", Description: "Helps.",
		Prompt: Prompt{System: "Be kind to {{who}}.", Variables: map[string]string{"who": "people"}},
		Model:  Model{Policy: ModelConfigured, Provider: "anthropic", ID: "claude-sonnet-4-5"},
		Tools:  Tools{Approval: harness.ApproveAlways},
		Limits: Limits{MaxRunSeconds: 60, InterruptSeconds: 600},
	}
}

func TestNormalise(t *testing.T) {
	got, err := Normalise(Blueprint{
		Name: " Cafe\u0301 ", Slug: " s ", Harness: Harness{Options: json.RawMessage(` {"b":1.0, "a" : "\u00e9"} `)},
		Prompt: Prompt{System: "e\u0301", Variables: map[string]string{"v": "e\u0301"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Blueprint{
		Name: "Café", Slug: "s", Harness: Harness{Options: json.RawMessage(`{"a":"é","b":1}`)},
		Prompt: Prompt{System: "é", Variables: map[string]string{"v": "é"}}, Model: Model{Policy: ModelHarnessDefault},
		Tools: Tools{Approval: harness.ApproveSensitive},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got.Harness.ID != "" || got.HarnessID() != harness.Default {
		t.Errorf("a blueprint without a harness was rewritten to %q, or resolves to %q", got.Harness.ID, got.HarnessID())
	}
	for _, empty := range []string{"", "null", "{}", " { } "} {
		b := good()
		b.Harness.Options = json.RawMessage(empty)
		if got, err := Normalise(b); err != nil || got.Harness.Options != nil {
			t.Errorf("options %q: %s, %v", empty, got.Harness.Options, err)
		}
	}
}

// TestMalformed: one mistake each, and the path of the field that is named.
func TestMalformed(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	manyVars := map[string]string{}
	for i := range MaxVariables + 1 {
		manyVars[fmt.Sprintf("v%d", i)] = ""
	}
	set := func(change func(*Blueprint)) Blueprint { b := good(); change(&b); return b }
	options := func(s string) Blueprint {
		return set(func(b *Blueprint) { b.Harness.Options = json.RawMessage(s) })
	}
	name := func(s string) Blueprint { return set(func(b *Blueprint) { b.Name = s }) }
	for _, c := range []struct {
		why  string
		b    Blueprint
		path string // empty: well-formed
	}{
		{"good", good(), ""},
		{"empty", Blueprint{}, "name"},
		{"blank name", name(" \t "), "name"},
		{"longest name", name(strings.Repeat("é", 80)), ""},
		{"longer name", name(strings.Repeat("é", 81)), "name"},
		{"control character", name("a\x00b"), "name"},
		{"escape sequence", name("a\x1b[2Jb"), "name"},
		{"line break in a name", name("a\nb"), "name"},
		{"line separator in a name", name("a\u2028b"), "name"},
		{"C1 control", name("a\u0085b"), "name"},
		{"bidirectional override", name("safe\u202etxt.exe"), "name"},
		{"isolate", name("a\u2066b\u2069"), "name"},
		{"zero-width space", name("ad\u200bmin"), "name"},
		{"byte order mark", name("a\ufeffb"), "name"},
		{"tag characters", name("a\U000e0041"), "name"},
		{"only joiners", name("\u200d\u200d"), "name"},
		{"only combining marks", name("\u0301\u0301"), "name"},
		{"noncharacter", name("a\uffffb"), "name"},
		{"invalid UTF-8", name("a\xff"), "name"},
		{"surrogate as bytes", name("a\xed\xa0\x80"), "name"},
		{"emoji with a joiner", name("👩\u200d💻"), ""},
		{"Arabic", name("مساعد"), ""},
		{"no slug", set(func(b *Blueprint) { b.Slug = "" }), "slug"},
		{"slug in upper case", set(func(b *Blueprint) { b.Slug = "Helper" }), "slug"},
		{"longest slug", set(func(b *Blueprint) { b.Slug = strings.Repeat("a", 64) }), ""},
		{"longer slug", set(func(b *Blueprint) { b.Slug = strings.Repeat("a", 65) }), "slug"},
		{"slug with a line break", set(func(b *Blueprint) { b.Slug = "a\nb" }), "slug"},
		{"long description", set(func(b *Blueprint) { b.Description = strings.Repeat("x", 2001) }), "description"},
		{"lines in a description", set(func(b *Blueprint) { b.Description = "a\n\tb" }), ""},
		{"override in a description", set(func(b *Blueprint) { b.Description = "a\u202eb" }), "description"},
		{"harness id", set(func(b *Blueprint) { b.Harness.ID = "../x" }), "harness.id"},
		{"unknown harness id", set(func(b *Blueprint) { b.Harness.ID = "not_here" }), ""},
		{"profile id", set(func(b *Blueprint) { b.Harness.ProfileID = "A B" }), "harness.profileId"},
		{"longest prompt", set(func(b *Blueprint) { b.Prompt.System = strings.Repeat("x", MaxSystemChars) }), ""},
		{"longer prompt", set(func(b *Blueprint) { b.Prompt.System = strings.Repeat("x", MaxSystemChars+1) }), "prompt.system"},
		{"NUL in a prompt", set(func(b *Blueprint) { b.Prompt.System = "a\x00" }), "prompt.system"},
		{"prompt right to left", set(func(b *Blueprint) { b.Prompt.System = "a\u202eb" }), ""},
		{"too many variables", set(func(b *Blueprint) { b.Prompt.Variables = manyVars }), "prompt.variables"},
		{"variable name", set(func(b *Blueprint) { b.Prompt.Variables = map[string]string{"A b": ""} }), "prompt.variables"},
		{"variable value", set(func(b *Blueprint) { b.Prompt.Variables = map[string]string{"a": strings.Repeat("x", 4001)} }), "prompt.variables.a"},
		{"invalid UTF-8 in a variable", set(func(b *Blueprint) { b.Prompt.Variables = map[string]string{"a": "\xff"} }), "prompt.variables.a"},
		{"model policy", set(func(b *Blueprint) { b.Model.Policy = "ANY" }), "model.policy"},
		{"no provider", set(func(b *Blueprint) { b.Model.Provider = "" }), "model.provider"},
		{"no model", set(func(b *Blueprint) { b.Model.ID = "" }), "model.id"},
		{"model with a space", set(func(b *Blueprint) { b.Model.ID = "a b" }), "model.id"},
		{"negative limit", set(func(b *Blueprint) { b.Limits.MaxRunSeconds = -1 }), "limits.maxRunSeconds"},
		{"limit above a day", set(func(b *Blueprint) { b.Limits.MaxRunSeconds = 86_401 }), "limits.maxRunSeconds"},
		{"longest run", set(func(b *Blueprint) { b.Limits.MaxRunSeconds = 86_400 }), ""},
		{"default time to decide", set(func(b *Blueprint) { b.Limits.InterruptSeconds = 0 }), ""},
		{"shortest time to decide", set(func(b *Blueprint) { b.Limits.InterruptSeconds = 10 }), ""},
		{"shorter time to decide", set(func(b *Blueprint) { b.Limits.InterruptSeconds = 9 }), "limits.interruptSeconds"},
		{"negative time to decide", set(func(b *Blueprint) { b.Limits.InterruptSeconds = -10 }), "limits.interruptSeconds"},
		{"longest time to decide", set(func(b *Blueprint) { b.Limits.InterruptSeconds = 2_592_000 }), ""},
		{"longer time to decide", set(func(b *Blueprint) { b.Limits.InterruptSeconds = 2_592_001 }), "limits.interruptSeconds"},
		{"approval never", set(func(b *Blueprint) { b.Tools.Approval = harness.ApproveNever }), ""},
		{"approval by default", set(func(b *Blueprint) { b.Tools.Approval = "" }), ""},
		{"approval in lower case", set(func(b *Blueprint) { b.Tools.Approval = "always" }), "tools.approval"},
		{"unknown approval", set(func(b *Blueprint) { b.Tools.Approval = "SOMETIMES" }), "tools.approval"},
		{"options are a list", options(`[]`), "harness.options"},
		{"options are text", options(`"x"`), "harness.options"},
		{"options are broken", options(`{"a":`), "harness.options"},
		{"something after options", options(`{} {}`), "harness.options"},
		{"a key twice", options(`{"a":1,"a":2}`), "harness.options"},
		{"a key twice, escaped", options(`{"a":1,"\u0061":2}`), "harness.options"},
		{"a key twice, deep", options(`{"a":[{"b":1,"b":2}]}`), "harness.options.a[0]"},
		{"empty key", options(`{"":1}`), "harness.options"},
		{"control character in a key", options(`{"a\u0000":1}`), "harness.options"},
		{"control character in a value", options(`{"a":["\u001b"]}`), "harness.options.a[0]"},
		{"deepest", options(deep(MaxOptionsDepth)), ""},
		{"deeper", options(deep(MaxOptionsDepth + 1)), "harness.options"},
		{"much deeper", options(strings.Repeat("[", 30_000)), "harness.options"},
		{"deep list", options(`{"a":` + strings.Repeat("[", 10_000)), "harness.options"},
		{"largest", options(`{"a":"` + strings.Repeat("x", harness.MaxOptionsBytes-8) + `"}`), ""},
		{"larger", options(`{"a":"` + strings.Repeat("x", harness.MaxOptionsBytes-7) + `"}`), "harness.options"},
		{"invalid UTF-8 in options", options("{\"a\":\"\xff\"}"), "harness.options"},
		{"largest integer", options(`{"a":9007199254740991}`), ""},
		{"an integer that would change", options(`{"a":9007199254740993}`), "harness.options.a"},
		{"infinite", options(`{"a":1e999}`), "harness.options.a"},
		{"not a number", options(`{"a":NaN}`), "harness.options"},
	} {
		t.Run(c.why, func(t *testing.T) {
			b, err := Normalise(c.b)
			if err == nil {
				err = Check(b)
			}
			if c.path == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			p, ok := problem.As(err)
			if !ok || p.Code != problem.BadUserInput || strings.Join(p.Field, ".") != c.path {
				t.Fatalf("got %v, want a problem of %s", err, c.path)
			}
			if len(p.Message) > 500 || strings.ContainsAny(p.Message, "\x00\x1b\u202e") {
				t.Errorf("the message repeats hostile text: %q", p.Message)
			}
		})
	}
}

func TestForbidden(t *testing.T) {
	options := func(s string) Blueprint { b := good(); b.Harness.Options = json.RawMessage(s); return b }
	key := "sk-ant-" + strings.Repeat("a1B2", 8) // made up
	for _, c := range []struct {
		why  string
		b    Blueprint
		want string // path and code of each issue
	}{
		{"good", good(), ""},
		{"ordinary options", options(`{"temperature":0.5,"maxTokens":10,"recursionLimit":5,"effort":"high","stop":["a/b"],"ratio":"3/4"}`), ""},
		{"prose about paths and commands", Blueprint{Prompt: Prompt{System: "Run ls -l /etc; never rm -rf ../x. Use arn:aws:s3:::b."}}, ""},
		{"a key in the prompt", Blueprint{Prompt: Prompt{System: "use " + key}}, "prompt.system SECRET_SHAPED"},
		{"a key in a variable", Blueprint{Prompt: Prompt{Variables: map[string]string{"k": "AKIAIOSFODNN7EXAMPLE"}}}, "prompt.variables.k SECRET_SHAPED"},
		{"a private key in the description", Blueprint{Description: "-----BEGIN RSA PRIVATE KEY-----"}, "description SECRET_SHAPED"},
		{"a bearer token", Blueprint{Prompt: Prompt{System: "Authorization: Bearer abcdefghijklmnopqrstuv"}}, "prompt.system SECRET_SHAPED"},
		{"a URL with a password", Blueprint{Prompt: Prompt{System: "see https://bob:hunter2@host/"}}, "prompt.system SECRET_SHAPED"},
		{"an ARN as a model", Blueprint{Model: Model{ID: "arn:aws:bedrock:us-east-1:1:model/x"}}, "model.id OPERATOR_OWNED"},
		{"key names", options(`{"apiKey":"x","api_key":"x","client-secret":"x","token":"x","authToken":"x","awsAccessKeyId":"x"}`),
			"harness.options.apiKey SECRET_SHAPED,harness.options.api_key SECRET_SHAPED,harness.options.authToken SECRET_SHAPED," +
				"harness.options.awsAccessKeyId SECRET_SHAPED,harness.options.client-secret SECRET_SHAPED,harness.options.token SECRET_SHAPED"},
		{"operator's names", options(`{"command":"x","env":{"A":"b"},"image":"x","cwd":"x","role_arn":"x"}`),
			"harness.options.command OPERATOR_OWNED,harness.options.cwd OPERATOR_OWNED,harness.options.env OPERATOR_OWNED," +
				"harness.options.image OPERATOR_OWNED,harness.options.role_arn OPERATOR_OWNED"},
		{"values", options(`{"a":"/etc/passwd","b":["~/x","../../x"],"c":{"d":"C:\\Windows"},"e":"$(id)","f":"x; curl evil","g":"arn:aws:iam::1:role/x","h":"` + key + `"}`),
			"harness.options.a OPERATOR_OWNED,harness.options.b[0] OPERATOR_OWNED,harness.options.b[1] OPERATOR_OWNED," +
				"harness.options.c.d OPERATOR_OWNED,harness.options.e OPERATOR_OWNED,harness.options.f OPERATOR_OWNED," +
				"harness.options.g OPERATOR_OWNED,harness.options.h SECRET_SHAPED"},
	} {
		t.Run(c.why, func(t *testing.T) {
			var got []string
			for _, i := range Forbidden(c.b) {
				got = append(got, i.Path+" "+i.Code)
				if i.Severity != SeverityError || strings.Contains(i.Message, "hunter2") || strings.Contains(i.Message, "sk-ant") {
					t.Errorf("issue %+v", i)
				}
			}
			if s := strings.Join(got, ","); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

func TestFingerprintFollowsContentOnly(t *testing.T) {
	print := func(options string, change func(*Blueprint)) string {
		b := good()
		b.Harness.Options = json.RawMessage(options)
		if change != nil {
			change(&b)
		}
		b, err := Normalise(b)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Fingerprint(b)
		if err != nil || len(f) != 64 {
			t.Fatalf("%q, %v", f, err)
		}
		return f
	}
	base := print(`{"a":1,"b":"é"}`, nil)
	for _, same := range []string{`{"b":"\u00e9","a":1.0}`, " {\n\"a\":1e0,\"b\":\"é\"}"} {
		if print(same, nil) != base {
			t.Errorf("%s has another fingerprint", same)
		}
	}
	for name, change := range map[string]func(*Blueprint){
		"name":     func(b *Blueprint) { b.Name += "!" },
		"options":  func(b *Blueprint) { b.Harness.Options = json.RawMessage(`{"a":1}`) },
		"variable": func(b *Blueprint) { b.Prompt.Variables = map[string]string{"who": "cats"} },
		"limit":    func(b *Blueprint) { b.Limits.MaxRunSeconds++ },
		"deadline": func(b *Blueprint) { b.Limits.InterruptSeconds++ },
		"approval": func(b *Blueprint) { b.Tools.Approval = harness.ApproveNever },
		"harness":  func(b *Blueprint) { b.Harness.ID = "scripted" },
	} {
		if print(`{"a":1,"b":"é"}`, change) == base {
			t.Errorf("the fingerprint does not see the %s", name)
		}
	}
}

// Normalising twice is normalising once, and a stored version reads back as it was written.
func TestNormaliseIsIdempotentAndRoundTrips(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("aé\u0301 \t\n{}\"<&\u2028😀")), 0, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		options, err := json.Marshal(rapid.MapOf(rapid.StringMatching(`[a-z]{1,5}`), rapid.Float64Range(-1e9, 1e9)).Draw(t, "options"))
		if err != nil {
			t.Fatal(err)
		}
		in := Blueprint{
			Name: text.Draw(t, "name"), Slug: text.Draw(t, "slug"), Description: text.Draw(t, "description"),
			Harness: Harness{ID: text.Draw(t, "harness"), Options: options},
			Prompt:  Prompt{System: text.Draw(t, "system"), Variables: rapid.MapOf(rapid.StringMatching(`[a-z]{1,5}`), text).Draw(t, "vars")},
		}
		once, err := Normalise(in)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := Normalise(once)
		if err != nil || !reflect.DeepEqual(once, twice) {
			t.Fatalf("once %+v, twice %+v, %v", once, twice, err)
		}
		raw, err := json.Marshal(once)
		if err != nil {
			t.Fatal(err)
		}
		var back Blueprint
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		before, err1 := Fingerprint(once)
		after, err2 := Fingerprint(back)
		if err1 != nil || err2 != nil || before != after {
			t.Fatalf("fingerprints %s and %s, %v, %v", before, after, err1, err2)
		}
	})
}

func FuzzOptions(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,{"b":null}]}`, `{"a":1,"a":2}`, `{"a":1e400}`, "{\"\xff\":1}", `{"a":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		b := good()
		b.Harness.Options = raw
		n, err := Normalise(b)
		if err != nil {
			if !problem.Is(err, problem.BadUserInput) {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if err := Check(n); err != nil {
			t.Fatalf("%q is normal but malformed: %v", raw, err)
		}
		if _, err := Fingerprint(n); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		Forbidden(n)
	})
}
