package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/internal/client"
)

// Verdicts that a call may allow.
const (
	verdictApprove = "approve"
	verdictEdit    = "edit"
	verdictReject  = "reject"
)

// maxShown is how many lines of a call's arguments are shown before the person asks for all.
const maxShown = 40

// ask asks the person for a decision. errLater when there is none now.
func (c *chat) ask(ctx context.Context, i client.Interrupt) (client.Decision, error) {
	c.showQuestion(i)
	if i.Kind == client.KindForm {
		return c.askForm(ctx, i)
	}
	return c.askCalls(ctx, i)
}

// showQuestion writes what is asked.
func (c *chat) showQuestion(i client.Interrupt) {
	if i.Prompt != "" {
		c.draw.note(bold, clean(i.Prompt))
	} else if i.Kind == client.KindApproval {
		c.draw.note(bold, "The agent wants to use tools:")
	}
	if i.Deadline != nil {
		c.draw.note(faint, "(waits until "+i.Deadline.Local().Format(time.RFC1123)+")")
	}
	for n, call := range i.Calls {
		c.showWaiting(call, n, len(i.Calls), maxShown)
	}
}

// showWaiting writes one call in full, or up to a number of lines.
func (c *chat) showWaiting(call client.ApprovalCall, n, of, most int) {
	head := markTool + line(call.Name)
	if of > 1 {
		head = fmt.Sprintf("%s (%d of %d)", head, n+1, of)
	}
	c.draw.note(cyan, head)
	body := strings.Split(pretty(call.Arguments), "\n")
	for k, l := range body {
		if k == most {
			c.draw.note(yellow, fmt.Sprintf("%s… %d more lines; v shows all", indent, len(body)-k))
			break
		}
		c.draw.note(plain, indent+l)
	}
}

// answer reads one answer. Ctrl-C is errLater.
func (c *chat) answer(ctx context.Context, prompt string) (string, error) {
	if err := c.draw.flush(); err != nil {
		return "", err
	}
	text, err := c.console.read(ctx, prompt)
	if errors.Is(err, errInterrupted) {
		return "", errLater
	}
	return strings.TrimSpace(text), err
}

// askCalls asks for one verdict for each call.
func (c *chat) askCalls(ctx context.Context, i client.Interrupt) (client.Decision, error) {
	var d client.Decision
	all := false
	for n, call := range i.Calls {
		if all && slices.Contains(call.Allowed, verdictApprove) {
			d.Calls = append(d.Calls, client.CallDecision{ToolCallID: call.ToolCallID, Verdict: client.Verdict{Approve: true}})
			continue
		}
		verdict, how, err := c.askCall(ctx, call, n, len(i.Calls))
		switch {
		case err != nil:
			return client.Decision{}, err
		case how == answerDismiss:
			return client.Decision{Dismiss: true}, nil
		case how == answerAll:
			all = true
		}
		d.Calls = append(d.Calls, client.CallDecision{ToolCallID: call.ToolCallID, Verdict: verdict})
	}
	return d, nil
}

// Answers to a question about a call, beside its verdicts.
const (
	answerAll     = "all"
	answerDismiss = "dismiss"
	answerLater   = "later"
	answerView    = "view"
)

// shortAnswers are what a person types for each answer; the whole word will do, too.
var shortAnswers = map[string]string{
	"a": verdictApprove, "y": verdictApprove, "yes": verdictApprove, "e": verdictEdit, "r": verdictReject, "n": verdictReject, "no": verdictReject,
	"d": answerDismiss, "l": answerLater, "v": answerView,
}

// askCall asks until there is an answer that the call allows.
func (c *chat) askCall(ctx context.Context, call client.ApprovalCall, n, of int) (client.Verdict, string, error) {
	options := append(slices.Clone(call.Allowed), answerDismiss, answerLater)
	if len(pretty(call.Arguments)) > 0 && strings.Count(pretty(call.Arguments), "\n") >= maxShown {
		options = append(options, answerView)
	}
	if n < of-1 && slices.Contains(call.Allowed, verdictApprove) {
		options = append(options, answerAll)
	}
	c.draw.note(bold, line(call.Name)+": "+strings.Join(labels(options), ", "))
	for {
		text, err := c.answer(ctx, answerPrompt)
		if err != nil {
			return client.Verdict{}, "", err
		}
		word, rest, _ := strings.Cut(text, " ")
		word = strings.ToLower(word)
		if whole, ok := shortAnswers[word]; ok {
			word = whole
		}
		if !slices.Contains(options, word) {
			c.draw.note(yellow, "Please answer one of: "+strings.Join(labels(options), ", "))
			continue
		}
		verdict, err := c.verdict(ctx, word, strings.TrimSpace(rest), call)
		switch {
		case errors.Is(err, errAgain):
			continue
		case word == answerView:
			c.showWaiting(call, n, of, -1)
			continue
		}
		return verdict, word, err
	}
}

// labels writes options so that their short forms show.
func labels(options []string) []string {
	out := make([]string, len(options))
	for i, o := range options {
		out[i] = o
		if shortAnswers[o[:min(1, len(o))]] == o {
			out[i] = "[" + o[:1] + "]" + o[1:]
		}
	}
	return out
}

// errAgain: the answer came to nothing; ask again.
var errAgain = errors.New("again")

// verdict makes the verdict that an answer stands for.
func (c *chat) verdict(ctx context.Context, word, rest string, call client.ApprovalCall) (client.Verdict, error) {
	switch word {
	case verdictApprove, answerAll:
		return client.Verdict{Approve: true}, nil
	case verdictReject:
		if rest == "" && c.console.interactive() {
			var err error
			if rest, err = c.answer(ctx, "why? (may be empty) "); err != nil {
				return client.Verdict{}, err
			}
		}
		return client.Verdict{Reject: &client.Reject{Message: rest}}, nil
	case verdictEdit:
		arguments, err := c.edit(ctx, rest, call.Arguments)
		if err != nil {
			return client.Verdict{}, err
		}
		return client.Verdict{Edit: &client.Edit{Arguments: arguments}}, nil
	case answerLater:
		return client.Verdict{}, errLater
	}
	return client.Verdict{}, nil
}

// object reads text as a JSON object.
func object(text string) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return nil, fmt.Errorf("that is no JSON object: %w", err)
	}
	if members == nil {
		return nil, errors.New("that is no JSON object")
	}
	return json.RawMessage(text), nil
}
