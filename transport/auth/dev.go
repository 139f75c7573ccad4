package auth

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/harness-engine/harness-engine/engine/authz"
)

// Bounds of development tokens.
const (
	MaxDevLife  = 30 * 24 * time.Hour
	devKeyBytes = 32 // RFC 7518, section 3.2: at least the size of the hash
	devIssuer   = "harness-engine-dev"
)

var subjectPattern = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,128}$`)

// DevOptions configure Dev. KeyFile and Environment are required.
type DevOptions struct {
	KeyFile     string // made when it is not there, readable by its owner only
	Environment string // of every caller; a token of another environment is not accepted
	Now         func() time.Time
}

// Dev mints and accepts the tokens of a development deployment: JWTs (RFC 7519) signed with HS256 by a key that only
// this deployment has. It is not for production: there is no revocation.
type Dev struct {
	key         []byte
	environment string
	now         func() time.Time
	parser      *jwt.Parser
}

// NewDev loads or makes the key.
func NewDev(o DevOptions) (*Dev, error) {
	if o.KeyFile == "" || o.Environment == "" {
		return nil, errors.New("auth: development tokens need a key file and an environment")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	key, err := loadKey(o.KeyFile)
	if err != nil {
		return nil, err
	}
	d := &Dev{key: key, environment: o.Environment, now: o.Now}
	d.parser = jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithIssuer(devIssuer),
		jwt.WithAudience(d.audience()),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithTimeFunc(o.Now),
	)
	return d, nil
}

// audience ties a token to the environment.
func (d *Dev) audience() string { return "harness-engine/" + d.environment }

// MintDev returns a token for the subject, [A-Za-z0-9._@-]{1,128}, that is good for life, at most MaxDevLife.
func (d *Dev) MintDev(subject string, life time.Duration) (string, error) {
	if !subjectPattern.MatchString(subject) {
		return "", fmt.Errorf("auth: subject %q is not 1 to 128 of A-Z, a-z, 0-9 and ._@-", subject)
	}
	if life <= 0 || life > MaxDevLife {
		return "", fmt.Errorf("auth: a token lives up to %s, not %s", MaxDevLife, life)
	}
	now := d.now()
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Issuer: devIssuer, Audience: jwt.ClaimStrings{d.audience()}, Subject: subject,
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(life)),
	})
	signed, err := token.SignedString(d.key)
	if err != nil {
		return "", fmt.Errorf("failed to sign a token: %w", err)
	}
	return signed, nil
}

// Authenticate implements Authenticator.
func (d *Dev) Authenticate(_ context.Context, token string) (Identity, error) {
	var claims jwt.RegisteredClaims
	if len(token) > MaxTokenBytes {
		return Identity{}, ErrInvalid
	}
	if _, err := d.parser.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return d.key, nil }); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if !subjectPattern.MatchString(claims.Subject) {
		return Identity{}, fmt.Errorf("%w: no usable subject", ErrInvalid)
	}
	return Identity{Caller: authz.Caller{Environment: d.environment, Subject: claims.Subject}, Expires: claims.ExpiresAt.Time}, nil
}

// loadKey reads the key, or makes it when there is none.
func loadKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read the token key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("auth: the token key %s may be read by others: chmod 600", filepath.Base(path))
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read the token key: %w", err)
	}
	if len(key) != devKeyBytes {
		return nil, fmt.Errorf("auth: the token key %s is %d bytes, not %d", filepath.Base(path), len(key), devKeyBytes)
	}
	return key, nil
}

// makeKey writes a new key beside the path and links it there, so that of two that start at once one key wins and no
// half-written one is ever read.
func makeKey(path string) ([]byte, error) {
	key := make([]byte, devKeyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("failed to make the token key: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // made with mode 0600
	if err != nil {
		return nil, fmt.Errorf("failed to write the token key: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(key)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, fmt.Errorf("failed to write the token key: %w", err)
	}
	switch err := os.Link(f.Name(), path); {
	case errors.Is(err, fs.ErrExist):
		return loadKey(path)
	case err != nil:
		return nil, fmt.Errorf("failed to write the token key: %w", err)
	}
	return key, nil
}
