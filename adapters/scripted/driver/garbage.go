package driver

import (
	"errors"
	"math"
	"strings"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/worker"
)

// garbage is what a broken harness could send, by name. Each kind must end its run as run.error with the code
// harness_event_invalid, except where the name says otherwise.
var garbage = map[string]func(sink worker.Sink) error{
	"delta_before_start":  say(event.TextDelta{MessageID: "nobody", Delta: "x"}),
	"finish_before_start": say(event.TextFinished{MessageID: "nobody"}),
	"message_twice": say(
		event.TextStarted{MessageID: "twice", Role: "assistant"}, event.TextFinished{MessageID: "twice"},
		event.TextStarted{MessageID: "twice", Role: "assistant"},
	),
	"bad_role":        say(event.TextStarted{MessageID: "role", Role: "system"}),
	"empty_id":        say(event.TextStarted{Role: "assistant"}),
	"long_id":         say(event.TextStarted{MessageID: strings.Repeat("x", 129), Role: "assistant"}),
	"control_id":      say(event.TextStarted{MessageID: "a\x00b", Role: "assistant"}),
	"invalid_utf8_id": say(event.TextStarted{MessageID: "\xff", Role: "assistant"}),
	"unknown_tool":    say(event.ToolFinished{ToolCallID: "nobody", Result: "x"}),
	"tool_twice":      say(event.ToolStarted{ToolCallID: "twice", Name: "x"}, event.ToolStarted{ToolCallID: "twice", Name: "x"}),
	"tool_answers_twice": say(
		event.ToolStarted{ToolCallID: "once", Name: "x"}, event.ToolFinished{ToolCallID: "once", Result: "x"},
		event.ToolError{ToolCallID: "once", Code: "x", Message: "x"},
	),
	"arguments_not_json":  say(event.ToolStarted{ToolCallID: "json", Name: "x", Arguments: []byte("{")}),
	"open_tool_at_finish": say(event.ToolStarted{ToolCallID: "open", Name: "x"}, finished("end_turn")),
	"unknown_stop_reason": say(finished("because")),
	"unknown_category":    say(event.RunError{Code: "x", Message: "x", Category: "weather"}),
	"too_many_entries":    say(event.PlanUpdated{Entries: make([]event.PlanEntry, 10_000)}),
	"not_a_number":        say(event.UsageUpdated{Cost: new(math.NaN()), Currency: "USD"}),
	"negative_tokens":     say(event.UsageUpdated{InputTokens: new(int64(-1))}),
	"unknown_namespace":   in("nobody", event.TextStarted{MessageID: "child", Role: "assistant"}),
	"run_started":         say(event.RunStarted{Harness: "scripted"}),
	"run_recovered":       say(event.RunRecovered{Generation: 1 << 60}),
	"no_data":             say(nil),
	"run_interrupted":     say(event.RunInterrupted{InterruptID: "nobody", Reason: "x"}),
	"after_terminal":      say(finished("end_turn"), event.Warning{Code: "late", Message: "x"}), // ends well: what follows is dropped
	"no_terminal":         func(worker.Sink) error { return errStop },                           // terminal_missing
	"driver_error":        func(worker.Sink) error { return errors.New("a driver's error, with a secret in it") },
	"driver_panic":        func(worker.Sink) error { panic("a driver's panic, with a secret in it") },
}

// errStop ends a turn without an error.
var errStop = errors.New("the script is over")

func finished(reason string) event.Data {
	return event.RunFinished{Outcome: "success", StopReason: reason}
}

// say yields events one by one, as a harness would send them.
func say(data ...event.Data) func(worker.Sink) error { return in("", data...) }

func in(namespace string, data ...event.Data) func(worker.Sink) error {
	return func(sink worker.Sink) error {
		for _, d := range data {
			e := event.Event{Data: d}
			if namespace != "" {
				e.Namespace = []string{namespace}
			}
			if err := sink.Yield(worker.Step{Events: []event.Event{e}}); err != nil {
				return err
			}
		}
		return nil
	}
}
