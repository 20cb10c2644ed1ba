"""Tables in files, in and out: CSV, workbooks and Parquet; and numbers as people write them."""
