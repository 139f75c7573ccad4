package main

import (
	scripted "github.com/harness-engine/harness-engine/adapters/scripted/driver"
	"github.com/harness-engine/harness-engine/worker"
)

// drivers is the table of what this worker can drive, by harness id.
func drivers(o options) map[string]func() worker.Driver {
	return map[string]func() worker.Driver{
		"scripted": func() worker.Driver { return scripted.New(scripted.Options{}) },
	}
}
