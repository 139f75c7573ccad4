// Package graph is the executor that gqlgen generates from schema.graphqls, with the models and scalars that it binds.
// It holds no logic.
package graph

//go:generate go tool -modfile=../tools/go.mod gqlgen generate --config ../gqlgen.yml
