// Package driver drives the Claude Agent SDK inside a worker, through its bridge to the Agent Client Protocol
// (worker/node-claude).
package driver

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/harness-engine/harness-engine/adapters/acp"
	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

// Options say where the bridge is.
type Options struct {
	// NodePath is the Node program. Empty looks up "node" in the PATH of this process.
	NodePath string
	// ClaudeDir is the folder worker/node-claude, with its dependencies installed.
	ClaudeDir string
}

// New makes the driver.
func New(o Options) worker.Driver { return acp.New(Profile(o)) }

// The parts of the worker's state folder.
const (
	configFolder  = "claude" // CLAUDE_CONFIG_DIR
	homeFolder    = "claude-home"
	projectFolder = "thread" // of the transcript, whatever the workspace's path is
)

// Profile describes the bridge to the shared driver.
func Profile(o Options) acp.Profile {
	return acp.Profile{
		Command: func(env worker.Environment, c harness.Construction) (worker.Command, error) {
			return command(o, env, c)
		},
		Meta: sessionMeta,
		// The bridge's own mode lets a classifier of its own approve tools.
		Mode:       "default",
		ToolName:   toolName,
		Synthetic:  ownMessage.MatchString,
		Errors:     errorClasses,
		Permission: permit,
		Forms:      true,
		StatePaths: []string{configFolder + "/projects/" + projectFolder},
		Durability: event.DurabilityLocal,
	}
}

// bridge is the program, in the folder of its packages.
var bridge = filepath.Join("node_modules", "@agentclientprotocol", "claude-agent-acp", "dist", "index.js")

func command(o Options, env worker.Environment, c harness.Construction) (worker.Command, error) {
	if c.Model.Provider != "" && c.Model.Provider != "anthropic" {
		return worker.Command{}, badConstruction("The harness works with models of the provider anthropic only.", nil)
	}
	node := o.NodePath
	if node == "" {
		node = "node"
	}
	path, err := exec.LookPath(node)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return worker.Command{}, notInstalled(fmt.Errorf("failed to find node: %w", err))
	}
	main, err := filepath.Abs(filepath.Join(o.ClaudeDir, bridge))
	if err == nil {
		_, err = os.Stat(main)
	}
	if err != nil {
		return worker.Command{}, notInstalled(fmt.Errorf("failed to find the bridge: %w", err))
	}
	config, home := filepath.Join(env.State, configFolder), filepath.Join(env.State, homeFolder)
	for _, folder := range []string{config, home} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return worker.Command{}, fmt.Errorf("failed to make state folder: %w", err)
		}
	}
	settings := []string{
		"CLAUDE_CONFIG_DIR=" + config,
		"CLAUDE_CODE_PROJECT_DIR_NAME=" + projectFolder,
		"HOME=" + home,
		"TMPDIR=" + home,
		"CLAUDE_CODE_TMPDIR=" + home,
		"ANTHROPIC_BASE_URL=" + env.ModelURL + "/anthropic",
		"ANTHROPIC_API_KEY=none", // the model proxy has the key; without any, the harness asks for a login
	}
	if c.Model.ID != "" {
		for _, role := range []string{"ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL",
			"ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL"} {
			settings = append(settings, role+"="+c.Model.ID) // an agent uses the model that its owner chose, for everything
		}
	}
	return worker.Command{Path: path, Args: []string{main}, Dir: env.Workspace, Env: append(settings, environment...)}, nil
}

// environment is the same for every agent. Nothing of the worker's own environment is passed on.
var environment = []string{
	"PATH=/usr/local/bin:/usr/bin:/bin",
	"LANG=C.UTF-8",
	"NODE_ENV=production",
	// Calls of the model: none but the agent's own, and none repeated behind anybody's back.
	"CLAUDE_CODE_MAX_RETRIES=0",
	"CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK=1",
	"CLAUDE_CODE_DISABLE_REFUSAL_RETRY=1",
	"CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK=1",
	"CLAUDE_CODE_DISABLE_MODEL_ACCESS_FALLBACK=1",
	"CLAUDE_CODE_DISABLE_TERMINAL_TITLE=1",
	"CLAUDE_CODE_THINKING_DISPLAY_UPDATES=0",
	"CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS=1",
	// The network: nothing but the model.
	"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	"DISABLE_TELEMETRY=1",
	"DISABLE_ERROR_REPORTING=1",
	"DISABLE_AUTOUPDATER=1",
	"DISABLE_UPDATES=1",
	"DISABLE_GROWTHBOOK=1",
	"DISABLE_BUG_COMMAND=1",
	"DISABLE_FEEDBACK_COMMAND=1",
	"CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL=1",
	"ENABLE_CLAUDEAI_MCP_SERVERS=false",
	// What a conversation is made of: its own transcript, and the workspace.
	"ENABLE_TOOL_SEARCH=false",
	"CLAUDE_CODE_DISABLE_AUTO_MEMORY=1",
	"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",
	"CLAUDE_CODE_DISABLE_CRON=1",
	"CLAUDE_CODE_DISABLE_FILE_CHECKPOINTING=1",
	"CLAUDE_CODE_DISABLE_FILE_MENTIONS=1",
	"CLAUDE_CODE_DISABLE_BUNDLED_SKILLS=1",
	"CLAUDE_CODE_ATTRIBUTION_HEADER=0",
}

// toolName reads the name that the bridge keeps beside a call.
func toolName(meta json.RawMessage) string {
	var m struct {
		ClaudeCode struct {
			ToolName string `json:"toolName"`
		} `json:"claudeCode"`
	}
	if json.Unmarshal(meta, &m) != nil {
		return ""
	}
	return m.ClaudeCode.ToolName
}

func notInstalled(cause error) error {
	return &worker.Failure{
		Category: event.CategoryConfiguration, Code: "harness_not_installed", Cause: cause,
		Message: "Node or the Claude bridge is not installed where the worker runs.",
	}
}

func badConstruction(message string, cause error) error {
	return &worker.Failure{Category: event.CategoryConfiguration, Code: "harness_options_invalid", Cause: cause, Message: message}
}
