package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// edit has the person change a call's arguments: what was typed behind the answer, else in the person's editor, else on
// one line. errAgain when nothing came of it.
func (c *chat) edit(ctx context.Context, typed string, arguments json.RawMessage) (json.RawMessage, error) {
	switch {
	case typed != "":
	case c.Editor != nil && c.console.interactive():
		return c.editFile(ctx, arguments)
	default:
		var err error
		if typed, err = c.answer(ctx, "arguments (JSON) "); err != nil {
			return nil, err
		}
	}
	changed, err := object(typed)
	if err != nil {
		c.draw.note(yellow, line(err.Error()))
		return nil, errAgain
	}
	return changed, nil
}

// editFile opens the arguments in the person's editor.
func (c *chat) editFile(ctx context.Context, arguments json.RawMessage) (json.RawMessage, error) {
	dir, err := os.MkdirTemp("", "harness-chat-") // only its owner may look into it
	if err != nil {
		return nil, fmt.Errorf("failed to make a file to edit: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "arguments.json")
	before := editable(arguments)
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		return nil, fmt.Errorf("failed to make a file to edit: %w", err)
	}
	if err := c.draw.flush(); err != nil {
		return nil, err
	}
	err = c.console.lend(func() error { return c.Editor(ctx, path) })
	if errors.Is(err, errLeave) {
		return nil, err
	}
	if err != nil {
		c.draw.note(yellow, "The editor failed: "+line(err.Error()))
		return nil, errAgain
	}
	after, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read what was edited: %w", err)
	}
	if strings.TrimSpace(string(after)) == strings.TrimSpace(before) {
		c.draw.note(yellow, "Nothing was changed.")
		return nil, errAgain
	}
	changed, err := object(string(after))
	if err != nil {
		c.draw.note(yellow, line(err.Error()))
		return nil, errAgain
	}
	return changed, nil
}

// editable is what goes into the editor: the arguments as they are.
func editable(arguments json.RawMessage) string {
	if isNull(arguments) {
		return "{}\n"
	}
	return indentJSON(arguments) + "\n"
}
