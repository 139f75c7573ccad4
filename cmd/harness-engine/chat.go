package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/harness-engine/harness-engine/engine/run"
	"github.com/harness-engine/harness-engine/internal/chat"
	"github.com/harness-engine/harness-engine/internal/client"
)

type chatCmd struct {
	Agent   string   `arg:"" help:"Id of the agent, or slug of one of yours."`
	Resume  string   `placeholder:"SESSION" help:"Go on with a conversation: its end is shown, and its run or question taken up."`
	Message *string  `short:"m" placeholder:"TEXT" help:"Send one message, print the answer and end; - reads the message from standard input."`
	Attach  []string `type:"existingfile" placeholder:"FILE" help:"Send a file along with the first message."`

	callFlags
}

// Help is shown by chat --help.
func (chatCmd) Help() string {
	return `Ctrl-C cancels the run that is at work; a second Ctrl-C leaves it to itself and says how to come back.

With --message the answer goes to standard output and everything else, where that is no terminal, to standard error.

The exit code of --message, and of input that comes from no terminal, tells how the last run ended: 0 finished, 3 failed,
4 waits for a person, 5 cancelled, 6 goes on without this program. 1 is any other failure.`
}

// outcomes are the exit codes of a chat by its outcome.
var outcomes = map[chat.Outcome]exitCode{chat.Failed: 3, chat.Waiting: 4, chat.Cancelled: 5, chat.Left: 6}

func (c chatCmd) Run(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // the chat hears Ctrl-C itself
	message, err := c.message(os.Stdin)
	if err != nil {
		return err
	}
	caller, err := c.client(ctx)
	if err != nil {
		return err
	}
	defer caller.Close()
	agent, err := caller.Agent(ctx, c.Agent)
	switch {
	case client.Code(err) == client.CodeNotFound:
		return fmt.Errorf("there is no agent %s that you may use", strconv.Quote(c.Agent))
	case err != nil:
		return fmt.Errorf("failed to find agent %s: %w", strconv.Quote(c.Agent), err)
	}
	outcome, err := chat.Run(ctx, chat.Options{
		Client: caller, Agent: agent, Session: c.Resume, Message: message, Attach: c.Attach,
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Colour: colourful(), Return: c.comeBack, Editor: editor(),
	})
	if err != nil {
		return err
	}
	if message == nil && term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	if code, bad := outcomes[outcome]; bad {
		return code
	}
	return nil
}

// message is the one message, nil where messages are read one by one.
func (c chatCmd) message(in io.Reader) (*string, error) {
	if c.Message == nil || *c.Message != "-" {
		return c.Message, nil
	}
	raw, err := io.ReadAll(io.LimitReader(in, run.MaxTextBytes+1)) // one more: the engine refuses it
	if err != nil {
		return nil, fmt.Errorf("failed to read the message: %w", err)
	}
	text := strings.TrimSuffix(string(raw), "\n")
	return &text, nil
}

// comeBack is the command that comes back to a session.
func (c chatCmd) comeBack(session string) string {
	words := append([]string{"harness-engine", "chat", c.Agent, "--resume", session}, c.words()...)
	for i, w := range words {
		words[i] = quote(w)
	}
	return strings.Join(words, " ")
}

// quote writes a word for a shell.
func quote(word string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@=,+"
	if word != "" && strings.Trim(word, safe) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// colourful reports whether standard output takes colours (no-color.org).
func colourful() bool {
	return term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// editor is the person's editor, as POSIX programs find it; nil where none is named.
func editor() func(ctx context.Context, path string) error {
	command := os.Getenv("VISUAL")
	if command == "" {
		command = os.Getenv("EDITOR")
	}
	if command == "" {
		return nil
	}
	return func(ctx context.Context, path string) error {
		// The variable is a command line of the person's own shell, as for git and crontab.
		e := exec.CommandContext(ctx, "sh", "-c", command+` "$1"`, "sh", path)
		e.Stdin, e.Stdout, e.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := e.Run(); err != nil {
			return errors.Join(errors.New(command), err)
		}
		return nil
	}
}
