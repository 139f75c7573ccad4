package enginetest

import (
	"context"
	"os/exec"
)

// Command is another run of the engine's program on the engine's data folder, for instance `chat`. The arguments begin
// with the command; env is added to the environment.
func (e *Engine) Command(ctx context.Context, args []string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, e.opts.Binaries.Engine, append(args, "--data", e.opts.Data)...)
	cmd.Env = append(environment(), env...)
	return cmd
}
