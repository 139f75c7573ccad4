package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/harness-engine/harness-engine/internal/client"
	"github.com/harness-engine/harness-engine/transport/auth"
)

// callFlags say which engine is called, and as whom.
type callFlags struct {
	Data        string `type:"path" help:"Folder of the running engine's data; default: data, or data/dev, whichever has an engine."`
	URL         string `name:"url" help:"Address of the engine; default: where the engine of the data folder listens."`
	Token       string `help:"Token; default: one signed with the data folder's key (development only)."`
	Subject     string `default:"dev" help:"Who such a token is for."`
	Environment string `default:"default" help:"Environment that such a token is good for."`
}

// chatTokenLife is the life of a token that is made for a chat; a fresh one is made when it is over.
const chatTokenLife = 24 * time.Hour

// defaultFolders are the data folders that are looked into where none is named.
var defaultFolders = []string{"data", "data/dev"}

// words are the flags as they were given, without the token.
func (f callFlags) words() []string {
	var words []string
	for _, w := range []struct{ flag, value, standard string }{
		{"--data", f.Data, ""}, {"--url", f.URL, ""}, {"--subject", f.Subject, "dev"}, {"--environment", f.Environment, "default"},
	} {
		if w.value != w.standard {
			words = append(words, w.flag, w.value)
		}
	}
	return words
}

// client makes a client that finds the engine again when it was started anew.
func (f callFlags) client(ctx context.Context) (*client.Client, error) {
	target, err := f.target(ctx)
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{Target: target, Renew: f.target}), nil
}

// target finds the engine and makes a token, as far as they are not given.
func (f callFlags) target(ctx context.Context) (client.Target, error) {
	t := client.Target{URL: strings.TrimSuffix(f.URL, "/"), Token: f.Token}
	if t.URL != "" && t.Token != "" {
		return t, nil
	}
	data, running, err := f.folder(ctx)
	if err != nil {
		return client.Target{}, err
	}
	if t.URL == "" {
		t.URL = running.url()
	}
	if t.Token == "" {
		if t.Token, err = f.mint(data); err != nil {
			return client.Target{}, err
		}
	}
	return t, nil
}

// folder is the data folder with the engine that runs on it.
func (f callFlags) folder(ctx context.Context) (dataFolder, endpoint, error) {
	folders := defaultFolders
	if f.Data != "" {
		folders = []string{f.Data}
	}
	for _, path := range folders {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", endpoint{}, fmt.Errorf("failed to resolve data folder %s: %w", path, err)
		}
		running, err := dataFolder(abs).running(ctx)
		switch {
		case err == nil:
			return dataFolder(abs), running, nil
		case errors.Is(err, errNoEngine) && f.URL != "" && hasKey(dataFolder(abs)):
			return dataFolder(abs), endpoint{}, nil // the engine is where the flag says
		case !errors.Is(err, errNoEngine):
			return "", endpoint{}, err
		}
	}
	if f.URL != "" {
		return "", endpoint{}, errors.New("a token is needed: give --token, or the engine's folder with --data")
	}
	return "", endpoint{}, fmt.Errorf("no engine runs on %s: start one (`make run`, or `harness-engine serve --dev`), name its folder with --data, "+
		"or give --url and --token", strings.Join(folders, " or "))
}

func hasKey(d dataFolder) bool {
	_, err := os.Stat(d.path(fileTokenKey))
	return err == nil
}

// mint makes a token with the data folder's key, which must be there.
func (f callFlags) mint(data dataFolder) (string, error) {
	if !hasKey(data) {
		return "", fmt.Errorf("the data folder has no %s: give --token", fileTokenKey)
	}
	tokens, err := auth.NewDev(auth.DevOptions{KeyFile: data.path(fileTokenKey), Environment: f.Environment})
	if err != nil {
		return "", err
	}
	return tokens.MintDev(f.Subject, chatTokenLife)
}

// url is the address for a client on this machine.
func (e endpoint) url() string {
	host, port, err := net.SplitHostPort(e.Addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return "http://" + net.JoinHostPort("localhost", port)
	}
	return "http://" + e.Addr
}
