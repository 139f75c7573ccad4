package authz

import _ "embed"

//go:embed model.fga
var modelDSL string

// ModelDSL is the authorization model in OpenFGA's DSL, schema 1.1.
func ModelDSL() string { return modelDSL }

// TypeTeam is a group of users; its usersets may stand where a user stands.
const TypeTeam = "team"

// AnyUser is the subject of a tuple that holds for every authenticated caller.
const AnyUser = "user:*"

// Relations that tuples state.
const (
	RelationAdmin    = "admin"    // platform
	RelationMember   = "member"   // platform, team
	RelationPlatform = "platform" // harness: the platform that it belongs to
	RelationUser     = "user"     // harness
	RelationOwner    = "owner"    // agent, session
	RelationEditor   = "editor"   // agent
	RelationRunner   = "runner"   // agent
	RelationViewer   = "viewer"   // agent
	RelationAgent    = "agent"    // session: the agent that it talks to
	RelationSession  = "session"  // run: the session that it belongs to
)

// Permissions: what checks ask for. They follow from relations and no tuple states them.
const (
	CanList        = "can_list"         // platform: list what one may see
	CanCreateAgent = "can_create_agent" // platform
	CanIntrospect  = "can_introspect"   // platform: read the API's schema
	CanAttach      = "can_attach"       // platform: upload what messages refer to
	CanView        = "can_view"         // agent, session, run
	CanViewConfig  = "can_view_config"  // agent: prompt, options, versions
	CanEdit        = "can_edit"         // agent
	CanUse         = "can_use"          // agent, harness: start runs on it
	CanDelete      = "can_delete"       // agent
	CanShare       = "can_share"        // agent: give relations to others
	CanRun         = "can_run"          // session: start a run in it
	CanClear       = "can_clear"        // session
	CanCancel      = "can_cancel"       // run
	CanResume      = "can_resume"       // run: decide the interrupt that it ended in
)

// permissions lists, for each type, what may be asked of its objects.
var permissions = map[string][]string{
	TypePlatform: {CanList, CanCreateAgent, CanIntrospect, CanAttach},
	TypeHarness:  {CanUse},
	TypeAgent:    {CanView, CanViewConfig, CanEdit, CanUse, CanDelete, CanShare},
	TypeSession:  {CanView, CanRun, CanClear},
	TypeRun:      {CanView, CanCancel, CanResume},
}

// stated lists, for each type, the relations that tuples may state.
var stated = map[string][]string{
	TypeUser:     {},
	TypeTeam:     {RelationMember},
	TypePlatform: {RelationAdmin, RelationMember},
	TypeHarness:  {RelationPlatform, RelationUser},
	TypeAgent:    {RelationOwner, RelationEditor, RelationRunner, RelationViewer},
	TypeSession:  {RelationAgent, RelationOwner},
	TypeRun:      {RelationSession},
}

// open lists, for each type, the relations that may be stated of AnyUser.
var open = map[string][]string{
	TypePlatform: {RelationMember},
	TypeHarness:  {RelationUser},
	TypeAgent:    {RelationRunner, RelationViewer},
}

// mutating are the permissions that guard changes; they are always checked past every cache.
var mutating = map[string]bool{
	CanCreateAgent: true,
	CanEdit:        true,
	CanUse:         true,
	CanDelete:      true,
	CanShare:       true,
	CanRun:         true,
	CanClear:       true,
	CanCancel:      true,
	CanResume:      true,
	CanAttach:      true,
}

// Relations lists, for each type, every relation and permission that the engine relies on. A model must have them all.
func Relations() map[string][]string {
	all := make(map[string][]string, len(stated))
	for kind, names := range stated {
		all[kind] = append(append([]string{}, names...), permissions[kind]...)
	}
	return all
}
