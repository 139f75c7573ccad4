package worker

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
)

// RecordVariable names a folder in which a worker records every run: the test machine compares a log with what the worker
// says that it yielded. Nothing is recorded without it. It is no feature of the product: the record holds what people and
// agents said, in plain text.
const RecordVariable = "HARNESS_WORKER_RECORD"

// maxRecord bounds the record of one run, in bytes. Beyond it the record says that it is not whole.
const maxRecord = 256 << 20

// record is one run's record: a file of lines, each written before the step can be read by anybody, so that whatever an
// engine has ever seen is in it, also when the worker is killed the moment after. See docs/workers.md.
type record struct {
	file *os.File
	size int
	log  *slog.Logger
}

// recordHead is the first line of a record.
type recordHead struct {
	RunID      string `json:"runId"`
	Instance   string `json:"instance"`
	SessionID  string `json:"sessionId"`
	Epoch      int64  `json:"epoch"`
	SandboxGen int64  `json:"sandboxGen"`
}

// newRecord begins a record, named <runId>.<instance>.ndjson. Nil, which records nothing, without a folder, or where the
// file cannot be made: a run does not depend on it.
func newRecord(folder string, head recordHead, log *slog.Logger) *record {
	if folder == "" {
		return nil
	}
	raw, err := json.Marshal(head)
	if err == nil {
		var f *os.File
		f, err = os.OpenFile(filepath.Join(folder, head.RunID+"."+head.Instance+".ndjson"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			r := &record{file: f, log: log}
			r.line(append(raw, '\n'))
			return r
		}
	}
	log.Error("failed to begin record of a run", "run", head.RunID, "error", err)
	return nil
}

// step writes one step in the form that the event stream has.
func (r *record) step(seq int64, body []byte) {
	if r == nil {
		return
	}
	out := append([]byte(`{"seq":`), strconv.AppendInt(nil, seq, 10)...)
	r.line(append(append(out, body...), '\n'))
}

// end says that the run has ended, and closes the file.
func (r *record) end() {
	if r == nil {
		return
	}
	r.line([]byte(`{"end":true}` + "\n"))
	r.close(nil)
}

// line is one write, so that a killed worker leaves whole lines but for the last.
func (r *record) line(b []byte) {
	if r.file == nil {
		return
	}
	if r.size += len(b); r.size > maxRecord {
		_, err := r.file.WriteString(`{"truncated":true}` + "\n")
		r.close(fmt.Errorf("record is longer than %d bytes: %w", maxRecord, err))
		return
	}
	if _, err := r.file.Write(b); err != nil {
		r.close(err)
	}
}

func (r *record) close(cause error) {
	if r.file == nil {
		return
	}
	if cause != nil {
		r.log.Error("record of a run ends early", "error", cause)
	}
	_ = r.file.Close()
	r.file = nil
}
