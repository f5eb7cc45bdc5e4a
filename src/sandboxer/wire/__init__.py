"""Request and answer models of the public API, one file per noun. Names are a promise to clients.

    GET    /health  /readyz  /metrics  /openapi.json  /v1/capabilities       unsigned, all others signed
    POST   /v1/sandboxes?wait=true                 CreateSandbox -> 201 Sandbox      (Idempotency-Key)
    GET    /v1/sandboxes?state=&label=k%3Dv&cursor=&limit=                -> SandboxPage
    POST   /v1/sandboxes/expire?apply=false                               -> Expired            (owner)
    GET    /v1/sandboxes/{id}                                             -> Sandbox
    DELETE /v1/sandboxes/{id}                                             -> Sandbox, also when gone
    POST   /v1/sandboxes/{id}/recreate | stop | resume | freeze | thaw | lock | unlock    -> Sandbox
    PATCH  /v1/sandboxes/{id}/ttl                  ChangeTtl              -> Sandbox
    GET    /v1/sandboxes/{id}/reachability                                -> Reachability
    GET    /v1/sandboxes/{id}/usage                                       -> Usage
    GET    /v1/sandboxes/{id}/events?after=&follow=true                   -> SSE of Event, id = Event.id
    POST   /v1/sandboxes/{id}/exec                 RunCommand             -> ExecResult, or SSE if the
           caller accepts text/event-stream: started, stdout, stderr …, then exit or error (Problem)
    POST   /v1/sandboxes/{id}/processes            StartProcess -> 201 Process       (Idempotency-Key)
    GET    /v1/sandboxes/{id}/processes                                   -> ProcessList
    GET    /v1/sandboxes/{id}/processes/{pid}                             -> Process
    GET    /v1/sandboxes/{id}/processes/{pid}/output?after=&encoding=     -> SSE: stdout, stderr …, exit;
           event ids ("stdout bytes.stderr bytes") are what `after` and Last-Event-ID take
    POST   /v1/sandboxes/{id}/processes/{pid}/stdin     WriteStdin        -> StdinWritten
    DELETE /v1/sandboxes/{id}/processes/{pid}/stdin                       -> 204, stdin closed
    POST   /v1/sandboxes/{id}/processes/{pid}/signal    SendSignal        -> 204
    GET    /v1/sandboxes/{id}/processes/{pid}/wait?timeout_s=             -> Process, running or ended
    DELETE /v1/sandboxes/{id}/processes/{pid}           kill all of it, forget it -> 204
    GET    /v1/sandboxes/{id}/files?path=&depth=1&cursor=&limit=          -> FilePage
    GET    /v1/sandboxes/{id}/files/stat?path=&follow=true                -> FileInfo
    GET|HEAD /v1/sandboxes/{id}/files/content?path=     Range             -> bytes
    PUT    /v1/sandboxes/{id}/files/content?path=&mode=&parents=true      bytes -> FileInfo
    DELETE /v1/sandboxes/{id}/files/content?path=&recursive=false         -> 204
    POST   /v1/sandboxes/{id}/files/mkdir MakeDirectory | move MoveFile | remove RemoveFile   -> 204
    GET    /v1/sandboxes/{id}/files/watch?path=&recursive=false           -> SSE: ready, then change …
    GET    /v1/sandboxes/{id}/files/tar?path=                             -> tar of the folder's content
    PUT    /v1/sandboxes/{id}/files/tar?path=           tar               -> TarUnpacked
    GET    /v1/sandboxes/{id}/terminal?terminal_id=&cols=&rows=&command=&cwd=&user=   WebSocket
    GET    /v1/sandboxes/{id}/terminals                                   -> TerminalList
    DELETE /v1/sandboxes/{id}/terminals/{terminal_id}                     -> 204
    POST   /v1/sandboxes/{id}/previews             CreatePreview -> 201 NewPreview   (Idempotency-Key)
    GET    /v1/sandboxes/{id}/previews -> PreviewList; DELETE …/{preview_id} -> 204
    *      /v1/sandboxes/{id}/ports/{port}/…       whatever listens there (signed, or a preview's token)
    GET    /v1/edge/ask?domain=                                           -> KnownName         (unsigned)
    POST   /v1/keys  CreateKey -> 201 NewKey; GET /v1/keys -> KeyList; DELETE /v1/keys/{public_key} -> 204
    GET    /v1/keys/tree -> KeyNode; POST /v1/keys/delegated CutKey -> 201 NewDelegatedKey
    POST   /v1/keys/validate ValidateKey -> KeyReport                                          (unsigned)
    POST   /v1/keys/{public_key}/reveal RevealKey -> NewKey                                    (unsigned)
    POST   /v1/keys/{public_key}/regenerate -> NewKey | top-up TopUpKey | suspend SuspendKey | unsuspend
    PUT    /v1/keys/{public_key}/expiry  SetExpiry                        -> 204
    POST   /v1/auth/challenge -> SessionChallenge; /v1/auth/session OpenSession -> 201 Session (unsigned)
    GET    /v1/auth/siwx -> SiwxOffer; POST /v1/auth/siwx SignIn -> 201 Session                (unsigned)
    DELETE /v1/auth/session -> 204; POST /v1/auth/genesis -> GenesisChallenge
    DELETE /v1/auth/sessions?address=                                     -> SessionsEnded
    GET    /v1/auth/wallets -> WalletList; POST …/challenge, POST LinkWallet -> 201, DELETE …/{address}
    GET    /v1/accounts/me -> Me; /v1/transfers -> TransferPage or CSV; /v1/usage -> UsageReport or CSV
    GET    /v1/usage/segments?after=&all_accounts=                        -> UsageSegmentPage or CSV
    POST   /v1/webhooks CreateWebhook -> 201 NewWebhook; GET -> WebhookList; GET|PATCH|DELETE …/{id}
    POST   /v1/webhooks/{id}/test -> Delivery | rotate-secret RotateSecret -> NewWebhook
    GET    /v1/webhooks/{id}/deliveries -> DeliveryPage; POST …/deliveries/{id}/redeliver -> Delivery
    POST   /v1/transfers  SendSats                                        -> 201 Moved
    GET    /v1/pricing, /pricing-for-agents.json -> Pricing (unsigned); POST /v1/quotes -> 201 Quote
    POST   /v1/accounts CreateAccount; GET /v1/accounts -> AccountPage; GET /v1/accounts/{id}      (owner)
    POST   /v1/accounts/{id}/suspend | reinstate | close | entitle | adjust; PUT …/caps            (owner)
    POST   /v1/payouts PayOut; GET /v1/ledger/verify | totals; /v1/audit, …/export, …/verify       (owner)
    POST   /v1/topups TopUp -> 201 Bought; POST /v1/keys/purchase BuyKey -> 201 BoughtKey    (paid by x402)
    GET    /v1/payments -> PaymentPage; GET /v1/payments/{id} -> Payment                       (unsigned)
    GET    /.well-known/x402 -> WellKnown; GET /discovery/resources -> Goods                   (unsigned)
    POST   /v1/invoices AskInvoice -> 201 NewInvoice; GET …/{id} -> Invoice, …/qr.svg, …/events -> SSE;
           GET /v1/rates -> RateList                                                           (unsigned)
    GET    /v1/invoices -> InvoiceList; POST …/{id}/look -> Invoice; GET /v1/refunds -> RefundList;
           POST /v1/refunds/{id}/sent SentRefund -> Refund                                         (owner)
    POST   /v1/services?wait=true                  CreateService -> 201 Service      (Idempotency-Key)
    GET    /v1/services?state=&cursor=&limit= -> ServicePage
    GET | PATCH ChangeService | DELETE /v1/services/{id or name}                        -> Service
    POST   /v1/services/{id}/redeploy RedeployService|freeze|thaw|stop|start|lock|unlock -> Service
    GET    /v1/services/{id}/logs?tail=100&follow=false&after=            -> LogPage, or SSE of line
    GET | PUT SetVault | PATCH ChangeVault | DELETE /v1/services/{id}/env -> Vault, names only
    GET    /v1/services/{id}/domains -> DomainList; POST ClaimDomain -> 201 Domain; POST …/{domain}/verify;
           DELETE …/{domain} -> 204
    GET    /v1/secrets -> SecretList; PUT PutSecret | DELETE /v1/secrets/{name} -> Secret
    PUT InjectSecrets | GET | DELETE /v1/sandboxes/{id}/secrets[/{name}] -> InjectedSecretList, WipedSecrets
    POST   /v1/ssh-keys AddSshKey -> 201 SshKey; GET -> SshKeyList; DELETE …/{id}; GET /v1/ssh -> SshGateway
    POST   /v1/sandboxes/{id}/snapshots            TakeSnapshot -> 201 Snapshot      (Idempotency-Key)
    GET    /v1/snapshots -> SnapshotPage; /v1/snapshots/tree -> SnapshotTree
    GET|PATCH ChangeSnapshot|DELETE /v1/snapshots/{id} -> Snapshot; POST …/lock | unlock -> Snapshot
    POST   /v1/snapshots/{id}/restore -> Sandbox | clone CloneSnapshot -> 201 Clones (Idempotency-Key)
    POST   /v1/volumes CreateVolume -> 201 Volume (Idempotency-Key); GET -> VolumePage
    GET | PATCH ChangeVolume | DELETE /v1/volumes/{id or name} -> Volume; POST …/lock | unlock -> Volume
    POST   /v1/volumes/{id or name}/restore RestoreVolume -> Volume | snapshots TakeSnapshot -> 201 Snapshot
    GET    /v1/images -> ImageList; /v1/profiles -> ProfileList
    GET    /v1/languages?image=&available= -> LanguageList, …/{name} -> Language; /v1/shells -> ShellList
           (unsigned)
    GET    /v1/cluster -> Cluster; /v1/pools -> Pools; /v1/stats -> Stats; /v1/limits -> Limits
    GET    /v1/host -> Host; /v1/host/stale -> StaleList; POST /v1/host/reap-stale -> Reaped       (owner)
    GET    /v1/host/garbage -> Garbage; POST /v1/host/collect-garbage?now= -> Collected                (owner)

Query paths are percent-encoded bytes: names that are not UTF-8 travel unharmed.
"""
