/* Kubeconfig files. The tree is libyaml's; only what is used of it is looked at, by path. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/file.h"
#include "kube/config.h"
#include "kube/config_internal.h"

#define FIELD_CAP 160

struct doc {
	yaml_document_t tree;
	const char *dir; /* folder of the file */
};

static int nomem(struct err *err)
{
	return err_set(err, ERR_NOMEM, "no memory for the configuration");
}

static const char *scalar(const yaml_node_t *n)
{
	return (const char *)n->data.scalar.value;
}

/* What YAML and JSON mean by "nothing". */
static bool is_null(const yaml_node_t *n)
{
	const char *s;

	if (n->type != YAML_SCALAR_NODE || n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return false;
	s = scalar(n);
	return *s == '\0' || strcmp(s, "~") == 0 || strcmp(s, "null") == 0;
}

/* "<path>.<name>" or "<name>". */
static const char *field_name(char buf[FIELD_CAP], const char *path, const char *name)
{
	snprintf(buf, FIELD_CAP, "%.110s%s%.40s", path, *path != '\0' ? "." : "", name);
	return buf;
}

/* The member of a mapping, *ret NULL where it is absent or null. ERR_INVALID: it is there twice. */
static int get(struct doc *d, yaml_node_t *map, const char *path, const char *name,
	       yaml_node_t **ret, struct err *err)
{
	yaml_node_t *found = NULL;
	char field[FIELD_CAP];

	*ret = NULL;
	for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
	     p++) {
		yaml_node_t *key = yaml_document_get_node(&d->tree, p->key);

		if (key->type != YAML_SCALAR_NODE)
			continue;
		/* What is merged in would be overlooked, credentials among it. */
		if (strcmp(scalar(key), "<<") == 0)
			return err_set(err, ERR_INVALID, "%s: merge keys are not supported",
				       field_name(field, path, "<<"));
		if (strcmp(scalar(key), name) != 0)
			continue;
		if (found != NULL)
			return err_set(err, ERR_INVALID, "%s: is given twice",
				       field_name(field, path, name));
		found = yaml_document_get_node(&d->tree, p->value);
	}
	*ret = found != NULL && !is_null(found) ? found : NULL;
	return 0;
}

static int get_typed(struct doc *d, yaml_node_t *map, const char *path, const char *name,
		     yaml_node_type_t type, yaml_node_t **ret, struct err *err)
{
	char field[FIELD_CAP];
	int r = get(d, map, path, name, ret, err);

	if (r < 0 || *ret == NULL || (*ret)->type == type)
		return r;
	return err_set(err, ERR_INVALID, "%s: is no %s", field_name(field, path, name),
		       type == YAML_MAPPING_NODE    ? "mapping"
		       : type == YAML_SEQUENCE_NODE ? "list"
						    : "string");
}

/* A string member in the tree; NULL where it is absent or empty. */
static int get_string(struct doc *d, yaml_node_t *map, const char *path, const char *name,
		      const char **ret, struct err *err)
{
	yaml_node_t *n;
	char field[FIELD_CAP];
	int r = get_typed(d, map, path, name, YAML_SCALAR_NODE, &n, err);

	*ret = NULL;
	if (r < 0 || n == NULL)
		return r;
	if (strlen(scalar(n)) != n->data.scalar.length)
		return err_set(err, ERR_INVALID, "%s: holds a NUL character",
			       field_name(field, path, name));
	if (n->data.scalar.length > 0)
		*ret = scalar(n);
	return 0;
}

static int get_bool(struct doc *d, yaml_node_t *map, const char *path, const char *name, bool *ret,
		    struct err *err)
{
	const char *s;
	char field[FIELD_CAP];
	int r = get_string(d, map, path, name, &s, err);

	if (r < 0 || s == NULL)
		return r;
	if (strcmp(s, "true") != 0 && strcmp(s, "false") != 0)
		return err_set(err, ERR_INVALID, "%s: is \"%.40s\", neither true nor false",
			       field_name(field, path, name), s);
	*ret = strcmp(s, "true") == 0;
	return 0;
}

/* Copies a string member; *ret stays as it is where there is none. */
static int copy_string(struct doc *d, yaml_node_t *map, const char *path, const char *name,
		       char **ret, struct err *err)
{
	const char *s;
	int r = get_string(d, map, path, name, &s, err);

	if (r < 0 || s == NULL)
		return r;
	free(*ret);
	*ret = strdup(s);
	return *ret == NULL ? nomem(err) : 0;
}

/* The entry of a named list (clusters, users, contexts) with that name: its inner mapping, and the
 * path to it. */
static int find_named(struct doc *d, yaml_node_t *root, const char *list, const char *inner,
		      const char *name, yaml_node_t **ret, char ret_path[FIELD_CAP],
		      struct err *err)
{
	yaml_node_t *seq = NULL, *found = NULL;
	int r = get_typed(d, root, "", list, YAML_SEQUENCE_NODE, &seq, err);

	if (r < 0)
		return r;
	for (yaml_node_item_t *i = seq != NULL ? seq->data.sequence.items.start : NULL;
	     seq != NULL && i < seq->data.sequence.items.top; i++) {
		yaml_node_t *entry = yaml_document_get_node(&d->tree, *i);
		char path[FIELD_CAP];
		const char *has = NULL;

		snprintf(path, sizeof(path), "%s[%td]", list, i - seq->data.sequence.items.start);
		if (entry->type != YAML_MAPPING_NODE)
			return err_set(err, ERR_INVALID, "%s: is no mapping", path);
		r = get_string(d, entry, path, "name", &has, err);
		if (r < 0)
			return r;
		if (has == NULL || strcmp(has, name) != 0)
			continue;
		if (found != NULL)
			return err_set(err, ERR_INVALID, "%s: a second entry \"%.100s\"", path,
				       name);
		r = get_typed(d, entry, path, inner, YAML_MAPPING_NODE, &found, err);
		if (r < 0)
			return r;
		snprintf(ret_path, FIELD_CAP, "%.100s.%s", path, inner);
		if (found == NULL)
			return err_set(err, ERR_INVALID, "%s: is missing", ret_path);
	}
	if (found == NULL)
		return err_set(err, ERR_NOT_FOUND, "%s: none is named \"%.200s\"", list, name);
	*ret = found;
	return 0;
}

/* "<name>-data" before "<name>", as kubectl has it. */
static int get_pem(struct doc *d, yaml_node_t *map, const char *path, const char *name,
		   struct ku_pem *ret, struct err *err)
{
	char data_name[64], field[FIELD_CAP];
	const char *data = NULL, *file = NULL;
	int r;

	snprintf(data_name, sizeof(data_name), "%s-data", name);
	r = get_string(d, map, path, data_name, &data, err);
	if (r == 0)
		r = get_string(d, map, path, name, &file, err);
	if (r < 0)
		return r;
	if (data != NULL)
		return ku_config_pem_data(data, field_name(field, path, data_name), ret, err);
	if (file != NULL)
		return ku_config_pem_file(file, d->dir, field_name(field, path, name), ret, err);
	return 0;
}

static int read_cluster(struct doc *d, yaml_node_t *map, const char *path, struct ku_config *c,
			struct err *err)
{
	const char *server;
	char field[FIELD_CAP];
	int r = get_string(d, map, path, "server", &server, err);

	field_name(field, path, "server");
	if (r == 0 && server == NULL)
		r = err_set(err, ERR_INVALID, "%s: is missing", field);
	if (r == 0)
		r = ku_config_check_server(server, field, &c->server, err);
	if (r == 0)
		r = get_pem(d, map, path, "certificate-authority", &c->ca, err);
	if (r == 0)
		r = get_bool(d, map, path, "insecure-skip-tls-verify", &c->insecure, err);
	if (r == 0)
		r = copy_string(d, map, path, "tls-server-name", &c->tls_server_name, err);
	if (r == 0)
		r = copy_string(d, map, path, "proxy-url", &c->proxy_url, err);
	if (r == 0 && c->proxy_url != NULL)
		r = ku_config_check_proxy(c->proxy_url, field_name(field, path, "proxy-url"), err);
	return r;
}

static int refuse_plugins(struct doc *d, yaml_node_t *map, const char *path, struct err *err)
{
	static const char token[] = "use a token, a tokenFile or a client certificate";
	static const struct {
		const char *name, *what, *instead;
	} refused[] = {
		{"exec", "credential plugins are not run", token},
		{"auth-provider", "credential plugins are not run", token},
		{"username", "passwords are not supported", token},
		{"password", "passwords are not supported", token},
		{"as", "impersonation is not supported", "use the credentials of that user"},
		{"as-uid", "impersonation is not supported", "use the credentials of that user"},
		{"as-groups", "impersonation is not supported", "use the credentials of that user"},
		{"as-user-extra", "impersonation is not supported", "use that user's credentials"},
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		yaml_node_t *n = NULL;
		char field[FIELD_CAP];
		int r = get(d, map, path, refused[i].name, &n, err);

		if (r < 0)
			return r;
		if (n != NULL)
			return err_set(err, ERR_INVALID, "%s: %s; %s",
				       field_name(field, path, refused[i].name), refused[i].what,
				       refused[i].instead);
	}
	return 0;
}

static int read_token(struct doc *d, yaml_node_t *map, const char *path, struct ku_config *c,
		      struct err *err)
{
	const char *token = NULL, *file = NULL;
	char field[FIELD_CAP];
	int r = get_string(d, map, path, "token", &token, err);

	if (r == 0)
		r = get_string(d, map, path, "tokenFile", &file, err);
	if (r < 0)
		return r;
	if (file != NULL) { /* before token, as in client-go */
		c->token_file = ku_config_join(d->dir, file);
		if (c->token_file == NULL)
			return nomem(err);
		r = ku_config_read_token(c->token_file, &c->token, err);
		return r < 0 ? err_prefix(err, r, "%s", field_name(field, path, "tokenFile")) : 0;
	}
	if (token == NULL)
		return 0;
	r = ku_config_check_token(token, field_name(field, path, "token"), err);
	if (r < 0)
		return r;
	c->token = strdup(token);
	return c->token == NULL ? nomem(err) : 0;
}

static int read_user(struct doc *d, yaml_node_t *map, const char *path, struct ku_config *c,
		     struct err *err)
{
	int r = refuse_plugins(d, map, path, err);

	if (r == 0)
		r = read_token(d, map, path, c, err);
	if (r == 0)
		r = get_pem(d, map, path, "client-certificate", &c->cert, err);
	if (r == 0)
		r = get_pem(d, map, path, "client-key", &c->key, err);
	return r;
}

static int read_context(struct doc *d, yaml_node_t *root, const char *name, struct ku_config *c,
			struct err *err)
{
	char path[FIELD_CAP], cluster_path[FIELD_CAP], user_path[FIELD_CAP] = "users";
	yaml_node_t *context = NULL, *cluster_map = NULL, *user_map = NULL;
	const char *cluster = NULL, *user = NULL;
	int r = find_named(d, root, "contexts", "context", name, &context, path, err);

	if (r == 0)
		r = get_string(d, context, path, "cluster", &cluster, err);
	if (r == 0)
		r = get_string(d, context, path, "user", &user, err);
	if (r == 0)
		r = copy_string(d, context, path, "namespace", &c->ns, err);
	if (r != 0)
		return r;
	if (cluster == NULL)
		return err_set(err, ERR_INVALID, "%s.cluster: is missing", path);
	r = find_named(d, root, "clusters", "cluster", cluster, &cluster_map, cluster_path, err);
	if (r < 0)
		return err_prefix(err, r, "%s.cluster", path);
	r = read_cluster(d, cluster_map, cluster_path, c, err);
	if (r == 0 && user != NULL) {
		r = find_named(d, root, "users", "user", user, &user_map, user_path, err);
		if (r < 0)
			return err_prefix(err, r, "%s.user", path);
		r = read_user(d, user_map, user_path, c, err);
	}
	if (r == 0)
		r = ku_config_check(c, cluster_path, user_path, err);
	return r;
}

static int read_root(struct doc *d, const char *context, struct ku_config *c, struct err *err)
{
	yaml_node_t *root = yaml_document_get_root_node(&d->tree);
	const char *kind = NULL, *current = context;
	int r;

	if (root == NULL)
		return err_set(err, ERR_INVALID, "the file is empty");
	if (root->type != YAML_MAPPING_NODE)
		return err_set(err, ERR_INVALID, "the file is no mapping");
	r = get_string(d, root, "", "kind", &kind, err);
	if (r == 0 && kind != NULL && strcmp(kind, "Config") != 0)
		r = err_set(err, ERR_INVALID, "kind: is \"%.40s\", not Config", kind);
	if (r == 0 && current == NULL)
		r = get_string(d, root, "", "current-context", &current, err);
	if (r == 0 && current == NULL)
		return err_set(err, ERR_INVALID, "current-context: is missing");
	c->ns = r == 0 ? strdup("default") : NULL;
	if (r == 0 && c->ns == NULL)
		r = nomem(err);
	return r != 0 ? r : read_context(d, root, current, c, err);
}

static int parse(const char *text, size_t len, struct doc *d, struct err *err)
{
	yaml_parser_t parser;
	int r = 0;

	if (!yaml_parser_initialize(&parser))
		return nomem(err);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	if (!yaml_parser_load(&parser, &d->tree))
		r = parser.error == YAML_MEMORY_ERROR
			    ? nomem(err)
			    : err_set(err, ERR_INVALID, "line %zu, column %zu: %s",
				      parser.problem_mark.line + 1, parser.problem_mark.column + 1,
				      parser.problem != NULL ? parser.problem : "is no YAML");
	yaml_parser_delete(&parser);
	return r;
}

static int load_text(const char *path, const char *text, size_t len, const char *context,
		     struct ku_config *ret, struct err *err)
{
	const char *slash = strrchr(path, '/');
	struct ku_config c = {0};
	struct doc d;
	char *dir;
	int r;

	if (memchr(text, '\0', len) != NULL)
		return err_set(err, ERR_INVALID, "the file holds a NUL character");
	dir = slash != NULL ? strndup(path, slash == path ? 1 : (size_t)(slash - path))
			    : strdup("");
	if (dir == NULL)
		return nomem(err);
	d.dir = dir;
	r = parse(text, len, &d, err);
	if (r == 0) {
		r = read_root(&d, context, &c, err);
		yaml_document_delete(&d.tree);
	}
	free(dir);
	if (r < 0) {
		ku_config_fini(&c);
		return r;
	}
	*ret = c;
	return 0;
}

int ku_config_load(const char *path, const char *context, struct ku_config *ret, struct err *err)
{
	char *text;
	size_t len;
	int r = file_read(path, KU_CONFIG_MAX_BYTES, &text, &len, err);

	if (r < 0)
		return r; /* names the file */
	r = load_text(path, text, len, context, ret, err);
	explicit_bzero(text, len);
	free(text);
	return r < 0 ? err_prefix(err, r, "%s", path) : 0;
}
