/* Tables of pods for st_contract_parse(). */
#ifndef TESSERA_TEST_CONTRACT_ROWS_H
#define TESSERA_TEST_CONTRACT_ROWS_H

#include <stddef.h>

#include "state/contract.h"
#include "test/lib/pod_text.h"

/* annotations and containers as pod_text_init() reads them. want is the request as request_text()
 * prints it, or "!" and the whole error message; warning is a part of the first warning, NULL =
 * there must be none. */
struct contract_row {
	const char *annotations, *containers, *want, *warning;
};

/* Expects each row; also that an error leaves the request as it was. */
void contract_rows_check(const struct contract_row *rows, size_t count,
			 const struct st_contract_options *opt);

#define CHECK_ROWS(rows, opt) contract_rows_check(rows, sizeof(rows) / sizeof((rows)[0]), opt)

#endif
