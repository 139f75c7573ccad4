package openfga

import (
	"context"
	"log/slog"

	fgalog "github.com/openfga/openfga/pkg/logger"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger sends the server's warnings and errors to a slog.Logger.
func newLogger(l *slog.Logger) fgalog.Logger {
	return &fgalog.ZapLogger{Logger: zap.New(slogCore{logger: l.With("component", "openfga")}, zap.WithFatalHook(zapcore.WriteThenPanic))}
}

// slogCore is a zapcore.Core on a slog.Logger.
type slogCore struct{ logger *slog.Logger }

var _ zapcore.Core = slogCore{}

var slogLevels = map[zapcore.Level]slog.Level{
	zapcore.WarnLevel:   slog.LevelWarn,
	zapcore.ErrorLevel:  slog.LevelError,
	zapcore.DPanicLevel: slog.LevelError,
	zapcore.PanicLevel:  slog.LevelError,
	zapcore.FatalLevel:  slog.LevelError,
}

// Enabled implements zapcore.Core.
func (c slogCore) Enabled(l zapcore.Level) bool {
	level, ok := slogLevels[l]
	return ok && c.logger.Enabled(context.Background(), level)
}

// With implements zapcore.Core.
func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{logger: c.logger.With(attributes(fields)...)}
}

// Check implements zapcore.Core.
func (c slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core.
func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.logger.Log(context.Background(), slogLevels[e.Level], e.Message, attributes(fields)...)
	return nil
}

// Sync implements zapcore.Core.
func (c slogCore) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
	encoder := zapcore.NewMapObjectEncoder()
	attrs := make([]any, 0, 2*len(fields))
	for _, f := range fields {
		f.AddTo(encoder)
	}
	for k, v := range encoder.Fields {
		attrs = append(attrs, k, v)
	}
	return attrs
}
