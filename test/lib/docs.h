/* Documents that hold a table written from the code. */
#ifndef TESSERA_TEST_DOCS_H
#define TESSERA_TEST_DOCS_H

#include "base/buf.h"

/* What stands behind the line "<!-- table -->" of the file is what the function writes; with
 * TESSERA_WRITE_DOCS=1 it is written there. */
void docs_expect(const char *path, void (*table)(struct buf *b));

#endif
