-- Version 4. Every statement can be run again: columns are added behind a look at information_schema.
DO 0;
