package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/e2e/enginetest"
)

// The browser of the test, and the variable that names another one.
const (
	browserVariable = "CHROMIUM"
	defaultBrowser  = "/usr/bin/chromium"
)

// TestPlayground runs a query and a subscription in the playground, in a real browser that may reach nothing but the
// engine. Only where there is no browser is it skipped.
func TestPlayground(t *testing.T) {
	browser := os.Getenv(browserVariable)
	if browser == "" {
		browser = defaultBrowser
	}
	if _, err := os.Stat(browser); err != nil {
		t.Skipf("no browser: install chromium, or name one in %s", browserVariable)
	}
	ctx := bounded(t)
	if _, err := os.Stat("browser/node_modules/playwright-core"); err != nil {
		install := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
		install.Dir = "browser"
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("failed to install the browser's driver: %v\n%s", err, out)
		}
	}
	engine := sharedEngine(t)
	c := clientOf(t, engine)
	agent := newAgent(ctx, t, c, scripted)
	r := start(ctx, t, c, agent.ID, "", enginetest.Script(enginetest.Say("seen in a browser")))

	shot := filepath.Join(t.TempDir(), "playground.png")
	cmd := exec.CommandContext(ctx, "node", "playground.mjs", engine.PlaygroundURL(), r.ID, shot)
	cmd.Dir = "browser"
	cmd.Env = append(os.Environ(), browserVariable+"="+browser)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "query and subscription answered") {
		t.Fatalf("the driver says %q", out)
	}
	if info, err := os.Stat(shot); err != nil || info.Size() < 10_000 {
		t.Fatalf("the screenshot is missing or empty: %v", err)
	}
}
