// Package openfga answers the engine's authorization checks with OpenFGA: a server embedded in the process, or one of
// the operator's own. It implements authz.Checker and authz.Tuples.
package openfga
