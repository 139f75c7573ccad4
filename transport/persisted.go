package transport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/harness-engine/harness-engine/engine/authz"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// persistedExtension is the member of a request's extensions that names a document by its hash.
const persistedExtension = "persistedQuery"

// persisted is the extension by which clients send a document once, and then its SHA-256 (Apollo's automatic persisted
// queries, version 1). The stock one would keep what anybody sends, of any length and whether or not it is valid: this
// keeps documents that were found valid, of callers who are known, no longer than longest bytes, and so many of them. A
// document that is gone is asked for again by PERSISTED_QUERY_NOT_FOUND.
type persisted struct {
	documents graphql.Cache[string]
	longest   int
}

var _ interface {
	graphql.HandlerExtension
	graphql.OperationParameterMutator
	graphql.OperationContextMutator
} = persisted{}

func newPersisted(most, longest int) persisted {
	return persisted{lru.New[string](most), longest}
}

// ExtensionName implements graphql.HandlerExtension.
func (persisted) ExtensionName() string { return "PersistedQueries" }

// Validate implements graphql.HandlerExtension.
func (persisted) Validate(graphql.ExecutableSchema) error { return nil }

// MutateOperationParameters finds the document of a hash, and checks the hash of a document.
func (d persisted) MutateOperationParameters(ctx context.Context, params *graphql.RawParams) *gqlerror.Error {
	hash, p := persistedHash(params.Extensions)
	switch {
	case p != nil:
		return wire(p)
	case hash == "":
		return nil
	case params.Query != "":
		if hashOf(params.Query) != hash {
			return wire(problem.Field("extensions.persistedQuery.sha256Hash", "is not the document's"))
		}
		return nil
	}
	document, ok := d.documents.Get(ctx, hash)
	if !ok {
		// Clients know it by this message or by the code.
		return wire(problem.New(problem.PersistedQueryNotFound, "PersistedQueryNotFound"))
	}
	params.Query = document
	return nil
}

// MutateOperationContext keeps a document that was found valid.
func (d persisted) MutateOperationContext(ctx context.Context, op *graphql.OperationContext) *gqlerror.Error {
	hash, p := persistedHash(op.Extensions)
	_, known := authz.CallerFrom(ctx)
	if p == nil && hash != "" && known && len(op.RawQuery) <= d.longest {
		d.documents.Add(ctx, hash, op.RawQuery)
	}
	return nil
}

// persistedHash reads the extension; empty where there is none.
func persistedHash(extensions map[string]any) (string, *problem.Error) {
	v := extensions[persistedExtension]
	if v == nil {
		return "", nil
	}
	members, ok := v.(map[string]any)
	if !ok {
		return "", problem.Field("extensions.persistedQuery", "must be an object")
	}
	if version, ok := members["version"].(interface{ String() string }); !ok || version.String() != "1" {
		return "", problem.Field("extensions.persistedQuery.version", "must be 1")
	}
	hash, ok := members["sha256Hash"].(string)
	if raw, err := hex.DecodeString(hash); !ok || err != nil || len(raw) != sha256.Size {
		return "", problem.Field("extensions.persistedQuery.sha256Hash", "must be a SHA-256 in hex")
	}
	return strings.ToLower(hash), nil
}

func hashOf(document string) string {
	sum := sha256.Sum256([]byte(document))
	return hex.EncodeToString(sum[:])
}
