package main

import "time"

// commands are what this program does: it serves, unless it is told otherwise.
type commands struct {
	Serve options     `cmd:"" default:"withargs" help:"Serve one conversation."`
	Shim  shimOptions `cmd:"" hidden:"" help:"Start a worker as its parent, and leave nothing of it behind."`
}

// shimOptions are the command line of the worker's parent.
type shimOptions struct {
	Detach  bool          `help:"Leave the caller's process tree first."`
	PidFile string        `required:"" help:"File to which the process id and start time are written before the worker is started."`
	Lock    string        `help:"File to hold locked until nothing of the sandbox is left." placeholder:"PATH"`
	Owner   string        `help:"File that has to say --claim once the lock is held; otherwise nothing is started." placeholder:"PATH"`
	Claim   string        `help:"What --owner has to say."`
	TTL     time.Duration `name:"ttl" default:"15m" help:"How long the worker may be silent until it has said otherwise."`
	Args    []string      `arg:"" passthrough:"" help:"Arguments of the worker, after --."`
}

// options are the command line of a worker. Secrets are never on it: other users can read it.
type options struct {
	Socket     string        `required:"" help:"Path of the unix socket to listen on. It must not exist."`
	SecretFile string        `required:"" help:"File with the secret that callers must know."`
	State      string        `required:"" help:"Folder of the harness's own state, kept between workers."`
	Workspace  string        `required:"" help:"Folder of the agent's files."`
	Mark       string        `required:"" help:"Name of the sandbox, in the environment of its processes."`
	Scratch    string        `help:"Folder for packed thread states." placeholder:"PATH"`
	PidFile    string        `help:"File to which the process id and start time are written before the socket listens."`
	LogFile    string        `help:"File to log to, bounded; the one before is kept with the suffix .1. Standard error when absent."`
	LogLevel   string        `default:"info" enum:"debug,info,warn,error" help:"Least level that is logged."`
	ReadyFD    uint          `name:"ready-fd" help:"Descriptor to which a line is written when the socket listens."`
	LinkFD     uint          `name:"link-fd" help:"Descriptor of the link to the worker's parent, without which it does not go on."`
	OrphanTTL  time.Duration `name:"orphan-ttl" default:"15m" help:"The worker ends when no engine calls it or listens to it for so long."`
	ParkedTTL  time.Duration `name:"parked-ttl" default:"24h" help:"The same while an interrupted turn waits in this process."`
	Node       string        `help:"Node.js program for harnesses that need it." placeholder:"PATH"`
	NodeDir    string        `help:"Folder of the Node.js agents." placeholder:"PATH"`
	ClaudeDir  string        `help:"Folder of the Claude bridge." placeholder:"PATH"`
}
