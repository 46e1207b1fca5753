#include "extender/options_file.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/file.h"

#define FILE_MAX ((size_t)1 << 20)

void ex_options_file_free(struct ex_options_file *f)
{
	if (f == NULL)
		return;
	for (size_t i = 0; i < f->count; i++) {
		free(f->names[i]);
		free(f->values[i]);
	}
	free(f->names);
	free(f->values);
	free(f);
}

static int add(struct ex_options_file *f, const yaml_node_t *name, const yaml_node_t *value,
	       struct err *err)
{
	size_t line = name->start_mark.line + 1, n = f->count + 1;
	char **names, **values;

	if (name->type != YAML_SCALAR_NODE || value->type != YAML_SCALAR_NODE)
		return err_set(err, ERR_INVALID, "line %zu: not of the form \"option: value\"",
			       line);
	names = reallocarray(f->names, n, sizeof(*names));
	if (names != NULL)
		f->names = names;
	values = reallocarray(f->values, n, sizeof(*values));
	if (values != NULL)
		f->values = values;
	if (names == NULL || values == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	names[f->count] = strdup((const char *)name->data.scalar.value);
	values[f->count] = strdup((const char *)value->data.scalar.value);
	f->count = n;
	if (names[n - 1] == NULL || values[n - 1] == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	return 0;
}

static int walk(struct ex_options_file *f, yaml_document_t *doc, struct err *err)
{
	const yaml_node_t *root = yaml_document_get_root_node(doc);
	int rc = 0;

	if (root == NULL)
		return 0; /* an empty file says nothing */
	if (root->type != YAML_MAPPING_NODE)
		return err_set(err, ERR_INVALID, "not a mapping of options to values");
	for (const yaml_node_pair_t *p = root->data.mapping.pairs.start;
	     p < root->data.mapping.pairs.top && rc == 0; p++)
		rc = add(f, yaml_document_get_node(doc, p->key),
			 yaml_document_get_node(doc, p->value), err);
	return rc;
}

static int parse(struct ex_options_file *f, const char *text, size_t len, struct err *err)
{
	yaml_parser_t parser;
	yaml_document_t doc;
	int rc;

	if (yaml_parser_initialize(&parser) == 0)
		return err_set(err, ERR_NOMEM, "out of memory");
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	if (yaml_parser_load(&parser, &doc) == 0) {
		rc = err_set(err, ERR_INVALID, "line %zu: %s", parser.problem_mark.line + 1,
			     parser.problem != NULL ? parser.problem : "no YAML");
	} else {
		rc = walk(f, &doc, err);
		yaml_document_delete(&doc);
	}
	yaml_parser_delete(&parser);
	return rc;
}

int ex_options_file_read(const char *path, struct ex_options_file **ret, struct err *err)
{
	struct ex_options_file *f = calloc(1, sizeof(*f));
	char *text = NULL;
	size_t len;
	int rc;

	if (f == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	rc = file_read(path, FILE_MAX, &text, &len, err); /* names the file */
	if (rc == 0 && (rc = parse(f, text, len, err)) < 0)
		err_prefix(err, rc, "%s", path);
	free(text);
	if (rc < 0) {
		ex_options_file_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}
