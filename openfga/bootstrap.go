package openfga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	openfgav1 "github.com/openfga/api/proto/openfga/v1"
	sdk "github.com/openfga/go-sdk"
	"github.com/openfga/go-sdk/client"
	"github.com/openfga/language/pkg/go/transformer"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/harness-engine/harness-engine/engine/authz"
)

const (
	pageSize      = 50
	maxStorePages = 200
)

// bootstrap finds or makes the store and the model, and sets up the SDK's client for them.
func (c *Client) bootstrap(ctx context.Context, o ClientOptions) error {
	c.store = o.StoreID
	if c.store == "" {
		// The SDK wants a client of its own while there is no store.
		if err := c.connect("", ""); err != nil {
			return err
		}
		store, err := c.findOrMakeStore(ctx, o.StoreName)
		if err != nil {
			return err
		}
		c.store = store
	}
	if err := c.connect(c.store, ""); err != nil {
		return err
	}
	// A server takes a model for a store that does not exist, so a wrong id has to be found here.
	if err := c.Ready(ctx); err != nil {
		return err
	}
	model := o.ModelID
	if model == "" {
		id, err := c.findOrWriteModel(ctx)
		if err != nil {
			return err
		}
		model = id
	}
	if err := c.connect(c.store, model); err != nil {
		return err
	}
	c.model = model
	if o.ModelID != "" {
		return c.verifyModel(ctx)
	}
	return nil
}

// connect makes the SDK's client. Repeating is ours: v0.6.3 takes its number of retries from the wrong field.
func (c *Client) connect(store, model string) error {
	s, err := client.NewSdkClient(&client.ClientConfiguration{
		ApiUrl: c.base, StoreId: store, AuthorizationModelId: model, HTTPClient: c.http,
	})
	if err != nil {
		return fmt.Errorf("failed to make authorization client: %w", err)
	}
	c.sdk = s
	return nil
}

type storesPage struct {
	Stores []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"stores"`
	ContinuationToken string `json:"continuation_token"`
}

// findOrMakeStore returns the oldest store of the name. Ids are ULIDs, so the oldest is the smallest.
func (c *Client) findOrMakeStore(ctx context.Context, name string) (string, error) {
	id, err := c.findStore(ctx, name)
	if err != nil || id != "" {
		return id, err
	}
	var made *client.ClientCreateStoreResponse
	err = c.write(ctx, func(ctx context.Context) (err error) {
		made, err = c.sdk.CreateStore(ctx).Body(client.ClientCreateStoreRequest{Name: name}).Execute()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("failed to create authorization store %q: %w", name, err)
	}
	// Another engine may have made one at the same time: look again, so that both take the same.
	id, err = c.findStore(ctx, name)
	if err != nil {
		return "", err
	}
	if id == "" {
		return "", fmt.Errorf("failed to find authorization store %s after its creation: %w", made.GetId(), authz.ErrUnavailable)
	}
	c.logger.InfoContext(ctx, "made authorization store", "store", id, "name", name)
	return id, nil
}

func (c *Client) findStore(ctx context.Context, name string) (string, error) {
	oldest, token := "", ""
	for range maxStorePages {
		query := url.Values{"page_size": {fmt.Sprint(pageSize)}, "name": {name}}
		if token != "" {
			query.Set("continuation_token", token)
		}
		var page storesPage
		err := c.read(ctx, func(ctx context.Context) error {
			page = storesPage{}
			return c.call(ctx, http.MethodGet, "/stores?"+query.Encode(), nil, &page)
		})
		if err != nil {
			return "", fmt.Errorf("failed to list authorization stores: %w", err)
		}
		for _, s := range page.Stores {
			// Older servers do not filter by name.
			if s.Name == name && (oldest == "" || s.ID < oldest) {
				oldest = s.ID
			}
		}
		if token = page.ContinuationToken; token == "" {
			return oldest, nil
		}
	}
	return "", fmt.Errorf("openfga: more than %d stores; give the id of the one to use", maxStorePages*pageSize)
}

// findOrWriteModel returns the newest model of the store that says what the engine's model says, looking through the
// newest page, so that going back to an older engine writes nothing either.
func (c *Client) findOrWriteModel(ctx context.Context) (string, error) {
	ours, err := transformer.TransformDSLToProto(authz.ModelDSL())
	if err != nil {
		return "", fmt.Errorf("failed to parse authorization model: %w", err)
	}
	var page *client.ClientReadAuthorizationModelsResponse
	err = c.read(ctx, func(ctx context.Context) (err error) {
		page, err = c.sdk.ReadAuthorizationModels(ctx).Options(client.ClientReadAuthorizationModelsOptions{PageSize: sdk.PtrInt32(pageSize)}).Execute()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("failed to read authorization models: %w", err)
	}
	for _, m := range page.GetAuthorizationModels() {
		theirs, err := toProto(m)
		if err != nil {
			return "", err
		}
		if sameModel(ours, theirs) {
			return theirs.GetId(), nil
		}
	}
	text, err := protojson.Marshal(ours)
	if err != nil {
		return "", fmt.Errorf("failed to encode authorization model: %w", err)
	}
	var body client.ClientWriteAuthorizationModelRequest
	if err := json.Unmarshal(text, &body); err != nil {
		return "", fmt.Errorf("failed to encode authorization model: %w", err)
	}
	var written *client.ClientWriteAuthorizationModelResponse
	err = c.write(ctx, func(ctx context.Context) (err error) {
		written, err = c.sdk.WriteAuthorizationModel(ctx).Body(body).Execute()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("failed to write authorization model: %w", err)
	}
	c.logger.InfoContext(ctx, "wrote authorization model", "store", c.store, "model", written.GetAuthorizationModelId())
	return written.GetAuthorizationModelId(), nil
}

// verifyModel makes sure that a model that the operator chose has what the engine asks for.
func (c *Client) verifyModel(ctx context.Context) error {
	var response *client.ClientReadAuthorizationModelResponse
	err := c.read(ctx, func(ctx context.Context) (err error) {
		response, err = c.sdk.ReadAuthorizationModel(ctx).Execute()
		return err
	})
	if err != nil {
		return fmt.Errorf("failed to read authorization model %s: %w", c.model, err)
	}
	model, err := toProto(response.GetAuthorizationModel())
	if err != nil {
		return err
	}
	var missing []error
	for kind, names := range authz.Relations() {
		i := slices.IndexFunc(model.GetTypeDefinitions(), func(t *openfgav1.TypeDefinition) bool { return t.GetType() == kind })
		if i < 0 {
			missing = append(missing, fmt.Errorf("no type %q", kind))
			continue
		}
		for _, name := range names {
			if _, ok := model.GetTypeDefinitions()[i].GetRelations()[name]; !ok {
				missing = append(missing, fmt.Errorf("no relation %q of %q", name, kind))
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("openfga: model %s does not fit: %w", c.model, errors.Join(missing...))
	}
	return nil
}

func toProto(m sdk.AuthorizationModel) (*openfgav1.AuthorizationModel, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("failed to encode authorization model %s: %w", m.GetId(), err)
	}
	var out openfgav1.AuthorizationModel
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("failed to decode authorization model %s: %w", m.GetId(), err)
	}
	return &out, nil
}

// sameModel compares what two models say, without their ids.
func sameModel(a, b *openfgav1.AuthorizationModel) bool {
	return canonical(a) == canonical(b)
}

// canonical is the model's text in the DSL, which has one form for the several in which the same model is encoded.
func canonical(m *openfgav1.AuthorizationModel) string {
	bare := proto.CloneOf(m)
	bare.Id = ""
	text, err := transformer.TransformJSONProtoToDSL(bare)
	if err != nil {
		return "" // cannot be said in the DSL: not one of ours
	}
	return text
}
