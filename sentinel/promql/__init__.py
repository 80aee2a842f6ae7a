"""The query language: lexer, parser, printer, vectorised and masked evaluation."""
