#include "kube/client_token.h"

#include <stdlib.h>
#include <string.h>

#include "kube/config.h"

int ku_token_read(struct ku_token *t, bool *ret_changed, struct err *err)
{
	char *text;
	int r;

	*ret_changed = false;
	if (t->file == NULL)
		return 0;
	r = ku_config_read_token(t->file, &text, err);
	if (r < 0)
		return r;
	*ret_changed = t->text == NULL || strcmp(t->text, text) != 0;
	ku_token_fini(t);
	t->text = text;
	return 0;
}

void ku_token_fini(struct ku_token *t)
{
	if (t->text != NULL)
		explicit_bzero(t->text, strlen(t->text));
	free(t->text);
	t->text = NULL;
}
