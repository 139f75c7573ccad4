package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// tryExpiry gives every program a token that is good for its beginning: it must end with an error when the token does,
// and not come back for ever. On a busy machine the first token may be too short for some to begin.
func tryExpiry(ctx context.Context, s *stage, agent enginetest.Agent, gorilla string) error {
	var wrong []string
	programs := clientPrograms
	for _, life := range tokenLives {
		trials, err := runWithToken(ctx, s, programs, agent, gorilla, life)
		if err != nil {
			return err
		}
		programs, wrong = nil, nil
		for _, t := range trials {
			var exit *exec.ExitError
			switch {
			case t.err == nil || t.heard.complete || errors.Is(t.err, errNotEnded):
				return fmt.Errorf("%s goes on behind the end of its token", t.program.file)
			case !errors.As(t.err, &exit):
				return fmt.Errorf("%s: %w", t.program.file, t.err)
			case len(t.heard.events) == 0:
				programs = append(programs, t.program)
				wrong = append(wrong, fmt.Sprintf("%s did not begin: %s", t.program.file, t.err))
			}
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	fmt.Printf("  when the token expires under way, each of the %d ends with an error\n", len(clientPrograms))
	return nil
}

// runWithToken runs programs with a token that is good for so long.
func runWithToken(ctx context.Context, s *stage, programs []clientProgram, agent enginetest.Agent, gorilla string, life time.Duration) ([]*trial, error) {
	if len(programs) == 0 {
		return nil, nil
	}
	token, err := s.engine.Command(ctx, []string{"token", "--subject", "dev", "--life", life.String()}).Output()
	if err != nil {
		return nil, err
	}
	trials, end, err := newTrials(s, programs, agent, gorilla, strings.TrimSpace(string(token)))
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, cancel := context.WithTimeoutCause(ctx, life+patience, errNotEnded)
	defer cancel()
	var all sync.WaitGroup
	for _, t := range trials {
		t.heard.cuts = make([]int64, cutsPerClient) // no more of them
		all.Go(func() { t.err = t.run(ctx) })
	}
	all.Wait()
	return trials, nil
}

// tokenLives are how long tokens are good that expire under way: a run goes on until it is told to end, which it is not.
var tokenLives = []time.Duration{8 * time.Second, 30 * time.Second, 2 * time.Minute}

// errNotEnded: a program went on behind the end of its token.
var errNotEnded = errors.New("it did not end with its token")
