package worker

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/engine/harness"
)

func TestDecodeLine(t *testing.T) {
	step := `{"seq":4,"events":[{"v":1,"type":"text.delta","data":{"messageId":"m","delta":"x"}}],"facts":{"k":"v"}}`
	e, end, err := decodeLine([]byte(step), 4)
	if end || err != nil || e.Seq != 4 || len(e.Events) != 1 || e.Facts["k"] != "v" {
		t.Fatalf("%+v %v %v", e, end, err)
	}
	for name, tc := range map[string]struct {
		line string
		want error
	}{
		"end":            {`{"end":true}`, io.EOF},
		"stale":          {`{"closed":"stale_lease"}`, harness.ErrStaleLease},
		"gone":           {`{"closed":"gone"}`, harness.ErrGone},
		"closing":        {`{"closed":"closing"}`, harness.ErrUnreachable},
		"unknown code":   {`{"closed":"weather"}`, ErrProtocol},
		"nothing":        {`{}`, ErrProtocol},
		"empty":          {``, ErrProtocol},
		"two things":     {`{"seq":4,"end":true}`, ErrProtocol},
		"unknown field":  {`{"seq":4,"more":1}`, ErrProtocol},
		"number skipped": {`{"seq":5}`, ErrProtocol},
		"number again":   {`{"seq":3}`, ErrProtocol},
		"negative":       {`{"seq":-1}`, ErrProtocol},
		"no number":      {`{"events":[]}`, ErrProtocol},
		"bad event":      {`{"seq":4,"events":[{"v":2}]}`, ErrProtocol},
		"trailing":       {`{"seq":4}{"seq":5}`, ErrProtocol},
	} {
		if _, end, err := decodeLine([]byte(tc.line), 4); !end || !errors.Is(err, tc.want) {
			t.Errorf("%s: %v %v, want %v", name, end, err, tc.want)
		}
	}
	if _, end, err := decodeLine([]byte(`{"heartbeat":true}`), 4); end || err != nil {
		t.Errorf("heartbeat: %v %v", end, err)
	}
}

func FuzzDecodeLine(f *testing.F) {
	for _, s := range []string{
		`{"seq":1}`, `{"end":true}`, `{"heartbeat":true}`, `{"closed":"gone"}`,
		`{"seq":1,"events":[{"v":1,"type":"text.delta","data":{"messageId":"m","delta":"x"}}],"facts":{"k":"v"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, end, err := decodeLine(raw, 1)
		if end != (err != nil) {
			t.Fatalf("end %v with error %v", end, err)
		}
		if !end && e.Seq != 0 && e.Seq != 1 {
			t.Fatalf("took number %d", e.Seq)
		}
	})
}

func FuzzBodies(f *testing.F) {
	for _, s := range []string{
		`{"runId":"run_1","text":"x"}`, `{"construction":{"harness":"test","options":{"a":1}},"limits":{}}`, `{"seq":1}`,
		`{"runId":"run_1","files":[{"name":"a","mediaType":"b","data":"AA=="}],"head":{"rev":1,"hash":"00"}}`,
		`{"runId":"run_1","resume":{"runId":"run_0","interruptId":"int_0","revision":1,"decision":{"calls":[{"toolCallId":"t","verdict":"edit","arguments":{}}]},"inherit":{"tools":[{"id":"t"}]}}}`,
		`{"reason":"shutdown"}`, `{"ifIdleMs":5}`, `{`, `[]`, `null`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, v := range []any{&BindRequest{}, &harness.Turn{}, &cancelRequest{}, &ackRequest{}, &shutdownRequest{}, &commitRequest{}} {
			err := decodeStrict(bytes.NewReader(raw), v)
			if err == nil {
				switch v := v.(type) {
				case *BindRequest:
					err = v.validate()
				case *harness.Turn:
					err = validateTurn(*v)
				}
			}
			if e := new(Error); err != nil && (!errors.As(err, &e) || statusOf[e.Code] == 0) {
				t.Fatalf("%T: %v", v, err)
			}
		}
	})
}

func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	r := newLines("short\n" + long + "\ncut off")
	if got, err := readLine(r, maxLine); err != nil || string(got) != "short" {
		t.Fatalf("%q %v", got, err)
	}
	if got, err := readLine(r, maxLine); err != nil || string(got) != long {
		t.Fatalf("%d bytes %v", len(got), err)
	}
	if got, err := readLine(r, maxLine); !errors.Is(err, io.EOF) {
		t.Fatalf("a line that is cut off: %q %v", got, err)
	}
	if _, err := readLine(newLines(long+"\n"), 100_000); !errors.Is(err, errLineTooLong) {
		t.Fatalf("got %v, want errLineTooLong", err)
	}
}
