package driver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/harness-engine/harness-engine/adapters/acp"
	"github.com/harness-engine/harness-engine/engine/harness"
)

// pathArguments name the argument of a file tool that says where it works. A tool without that argument works in the
// workspace.
var pathArguments = map[string]string{
	"Read": "file_path", "Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path", "Glob": "path", "Grep": "path",
}

// readers are the file tools without effects.
var readers = map[string]bool{"Read": true, "Glob": true, "Grep": true}

// permit decides on what the harness asks, which is every call with an effect and every file outside of the workspace.
// File tools never leave the workspace, whatever the policy says. What is left waits for a person by the agent's policy:
// a shell has effects outside of the workspace and can destroy; a file tool does neither.
func permit(c harness.Construction, p acp.Permission) acp.PermissionAnswer {
	argument, files := pathArguments[p.Tool]
	if files && !inside(p.Workspace, p.ToolCall.RawInput, argument) {
		return acp.Reject(c, p)
	}
	switch c.Approval {
	case harness.ApproveNever:
		return acp.Allow(c, p)
	case harness.ApproveAlways:
		if readers[p.Tool] {
			return acp.Allow(c, p)
		}
	default: // an agent whose policy is not known has the usual one
		if files {
			return acp.Allow(c, p)
		}
	}
	return acp.Ask(c, p)
}

// inside reports whether the path in a tool's input lies in the workspace, also when links are followed.
func inside(workspace string, input json.RawMessage, argument string) bool {
	var values map[string]json.RawMessage
	if json.Unmarshal(input, &values) != nil {
		return false
	}
	raw, given := values[argument]
	if !given {
		return true
	}
	var path string
	if json.Unmarshal(raw, &path) != nil {
		return false
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(workspace, path)
	}
	root, err := filepath.EvalSymlinks(workspace)
	if err != nil {
		return false
	}
	real, ok := resolve(filepath.Clean(path))
	if !ok {
		return false
	}
	rel, err := filepath.Rel(root, real)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// resolve follows the links of a path whose last parts may not exist yet.
func resolve(path string) (string, bool) {
	var rest []string
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(append([]string{real}, rest...)...), true
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			return "", false // a link to nowhere, or what cannot be read
		}
		rest = append([]string{filepath.Base(path)}, rest...)
		parent := filepath.Dir(path)
		if parent == path {
			return "", false
		}
		path = parent
	}
}
