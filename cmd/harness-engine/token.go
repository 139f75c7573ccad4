package main

import (
	"fmt"
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
