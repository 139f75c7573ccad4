package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/harness-engine/harness-engine/transport/auth"
)

type tokenCmd struct {
	Data        string        `default:"data" type:"path" help:"Folder of the engine's data; its key signs the token."`
	Environment string        `default:"default" help:"Environment that the token is good for."`
	Subject     string        `required:"" help:"Who the token is for: up to 128 of letters, digits and ._@-"`
	Life        time.Duration `default:"24h" help:"How long the token is good for, at most 720h."`
}

func (c tokenCmd) Run() error {
	// A token of a new key would be good for no engine.
	if _, err := os.Stat(filepath.Join(c.Data, fileTokenKey)); err != nil {
		return fmt.Errorf("no engine has run with the data folder %s (start `harness-engine serve --dev --data %s` first): %w", c.Data, c.Data, err)
	}
	data, err := openDataFolder(c.Data)
	if err != nil {
		return err
	}
	tokens, err := auth.NewDev(auth.DevOptions{KeyFile: data.path(fileTokenKey), Environment: c.Environment})
	if err != nil {
		return err
	}
	token, err := tokens.MintDev(c.Subject, c.Life)
	if err != nil {
		return err
	}
	fmt.Println(token)
	return nil
}
