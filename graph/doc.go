// Package graph is the executor that gqlgen generates from schema.graphqls (make generate), with the models and scalars
// that it binds. It holds no logic.
package graph
