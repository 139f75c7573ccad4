package chat

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/harness-engine/harness-engine/engine/file"
	"github.com/harness-engine/harness-engine/internal/client"
)

const help = `/attach FILE  send a file along with the next message
/clear        begin again: the agent forgets this conversation
/quit         leave; so does Ctrl-D
//...         a message that begins with a slash

While a run is at work: Ctrl-C cancels it, a second Ctrl-C leaves it to itself.
A backslash at the end of a line goes on with the message on the next.`

// commands by name; each gets what was typed behind it.
var commands = map[string]func(*chat, context.Context, string) error{
	"help":   (*chat).help,
	"quit":   (*chat).quit,
	"exit":   (*chat).quit,
	"clear":  (*chat).clear,
	"attach": (*chat).attachNext,
}

// command does what a line with a slash asks for.
func (c *chat) command(ctx context.Context, text string) error {
	name, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	do := commands[name]
	if do == nil {
		c.draw.note(yellow, "No such command; /help lists them. A message that begins with a slash begins with two.")
		return nil
	}
	return do(c, ctx, strings.TrimSpace(rest))
}

func (c *chat) help(context.Context, string) error {
	c.draw.note(faint, help)
	return nil
}

func (c *chat) quit(context.Context, string) error { return errLeave }

// clear begins a new epoch of the conversation.
func (c *chat) clear(ctx context.Context, _ string) error {
	if c.session == "" {
		c.draw.note(faint, "Nothing was said yet.")
		return nil
	}
	var s client.Session
	err := c.repeat(ctx, func(ctx context.Context) error {
		var err error
		s, err = c.Client.Clear(ctx, c.session)
		return err
	})
	if err != nil {
		return c.survive(err)
	}
	c.last = Finished
	c.draw.note(faint, fmt.Sprintf("cleared; the agent remembers nothing (epoch %d)", s.Epoch))
	return nil
}

func (c *chat) attachNext(ctx context.Context, path string) error {
	if path == "" {
		c.draw.note(yellow, "/attach needs the name of a file.")
		return nil
	}
	if err := c.attach(ctx, path); err != nil {
		c.draw.note(red, markFailure+line(err.Error()))
	}
	return nil
}

// attach uploads a file for the next message.
func (c *chat) attach(ctx context.Context, path string) error {
	if len(c.attached) == file.MaxPerMessage {
		return fmt.Errorf("failed to attach %s: a message takes %d files", path, file.MaxPerMessage)
	}
	data, err := readFile(path)
	if err != nil {
		return fmt.Errorf("failed to attach %s: %w", path, err)
	}
	var a client.Attachment
	err = c.repeat(ctx, func(ctx context.Context) error {
		a, err = c.Client.Upload(ctx, filepath.Base(path), mediaType(path, data), data)
		return err
	})
	if err != nil {
		return fmt.Errorf("failed to attach %s: %w", path, err)
	}
	c.attached = append(c.attached, a)
	c.draw.note(faint, fmt.Sprintf("attached %s (%s, %d bytes)", line(a.Name), line(a.MediaType), a.Size))
	return nil
}

// readFile reads a file that is not longer than an attachment may be.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, file.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > file.MaxBytes {
		return nil, fmt.Errorf("the file is longer than %d bytes", file.MaxBytes)
	}
	return data, nil
}

// byExtension are types that content does not tell.
var byExtension = map[string]string{".md": "text/markdown", ".csv": "text/csv", ".json": "application/json"}

// mediaType is the type of a file, by its name where that tells more than the content. The engine checks it.
func mediaType(path string, data []byte) string {
	sniffed, _, err := mime.ParseMediaType(http.DetectContentType(data))
	if err != nil {
		return "application/octet-stream"
	}
	if t := byExtension[strings.ToLower(filepath.Ext(path))]; t != "" && strings.HasPrefix(sniffed, "text/") {
		return t
	}
	return sniffed
}
