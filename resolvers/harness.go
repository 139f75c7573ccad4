package resolvers

import (
	"cmp"
	"context"
	"slices"

	"github.com/harness-engine/harness-engine/engine/catalog"
	"github.com/harness-engine/harness-engine/graph/model"
)

// Harnesses lists the catalog.
func (q queries) Harnesses(context.Context) ([]model.Harness, error) {
	entries := q.Catalog.Entries()
	ms := make([]model.Harness, len(entries))
	for i, e := range entries {
		ms[i] = harnessModel(e)
	}
	slices.SortFunc(ms, func(a, b model.Harness) int { return cmp.Compare(a.ID, b.ID) })
	return ms, nil
}

// Harness reads one entry of the catalog.
func (q queries) Harness(_ context.Context, id string) (*model.Harness, error) {
	if err := checkID("id", id); err != nil {
		return nil, err
	}
	return q.harnessEdge(&id), nil
}

// CatalogRevision is the digest over all harnesses.
func (q queries) CatalogRevision(context.Context) (string, error) {
	return q.Catalog.Revision(), nil
}

// harnessEdge is nil where no harness is named, or one that is not registered.
func (r *Root) harnessEdge(id *string) *model.Harness {
	if id == nil {
		return nil
	}
	e, ok := r.Catalog.Entry(*id)
	if !ok {
		return nil
	}
	m := harnessModel(e)
	return &m
}

func harnessModel(e catalog.Entry) model.Harness {
	d := e.Descriptor
	m := model.Harness{
		ID: d.ID, DisplayName: d.DisplayName, Description: d.Description, AdapterVersion: d.AdapterVersion,
		HarnessVersion: d.HarnessVersion, ExecutionMode: model.ExecutionMode(d.ExecutionMode), TrustBoundary: d.TrustBoundary,
		Availability: model.HarnessAvailability(e.Availability), AvailabilityDetail: optional(e.Detail),
		Enabled: e.Enabled, DisabledReason: optional(e.Reason),
		Certification: model.Certification(e.Certification), Capabilities: capabilityModels(d.Capabilities),
		Models: make([]model.Model, len(d.Models)), Profiles: make([]model.HarnessProfile, len(d.Profiles)),
		OptionsSchema: d.OptionsSchema, Revision: e.Revision,
		SupplyChain: model.SupplyChain{
			Packages: append([]string{}, d.SupplyChain.Packages...), Licence: d.SupplyChain.Licence,
			RuntimeArtefacts: append([]string{}, d.SupplyChain.RuntimeArtefacts...),
			NetworkBehaviour: d.SupplyChain.NetworkBehaviour, Credentials: append([]string{}, d.SupplyChain.Credentials...),
		},
	}
	for i, o := range d.Models {
		m.Models[i] = model.Model{Provider: o.Provider, ID: o.ID, Name: o.Name}
	}
	for i, p := range d.Profiles {
		m.Profiles[i] = model.HarnessProfile{ID: p.ID, Name: p.Name, Description: p.Description}
	}
	return m
}
