package procfs

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Rounds of KillAll: processes that are killed may leave children that are found only in the next round.
const (
	firstPause = time.Millisecond
	maxPause   = 50 * time.Millisecond
)

// KillAll sends SIGKILL to everything that pick chooses from the list of all processes, again and again, until it
// chooses nothing but zombies twice in a row, or ctx ends. After each round it calls reap (which may be nil), so that a parent can
// collect what ended. The second look is for a process that was being forked during the first.
func KillAll(ctx context.Context, pick func(all []Process) []Process, reap func()) error {
	quiet := 0
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		all, err := All()
		if err != nil {
			return err
		}
		live := 0
		for _, p := range pick(all) {
			if p.Zombie() {
				continue
			}
			live++
			_ = Signal(p, unix.SIGKILL) // gone is what we want; anything else shows in the next round
		}
		if reap != nil {
			reap()
		}
		if live > 0 {
			quiet = 0
		} else if quiet++; quiet == 2 {
			return nil
		}
		select {
		case <-ctx.Done():
			if live == 0 {
				return nil
			}
			return fmt.Errorf("failed to end %d processes in time: %w", live, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}
